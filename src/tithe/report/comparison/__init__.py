"""Fits on coresets, on random samples and on all rows, side by side, and which of them to use."""
