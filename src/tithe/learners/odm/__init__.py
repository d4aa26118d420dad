"""Optimal margin distribution machines: classifiers that look at the whole distribution of the margins."""
