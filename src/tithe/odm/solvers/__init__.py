"""Solvers of margin machines."""
