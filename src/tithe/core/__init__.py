"""Rows, contracts, the merge tree, seeds, names and errors. Imports no other room."""
