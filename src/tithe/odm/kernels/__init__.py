"""Compiled loops of margin machines."""
