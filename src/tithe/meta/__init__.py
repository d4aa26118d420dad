"""Any estimator on a coreset, and searches for its parameters."""
