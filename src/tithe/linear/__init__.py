"""Logistic, ridge, Poisson and Huber regression: objectives, kernels, constructions and learners."""
