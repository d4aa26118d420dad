"""Rows, protocols, the tree, seeds, names and errors. Imports no other room."""
