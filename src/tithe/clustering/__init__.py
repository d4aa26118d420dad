"""Clusters as a mixture of normal distributions."""
