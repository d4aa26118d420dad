"""What every learner shares: the template of fit, attributes, labels, tables."""
