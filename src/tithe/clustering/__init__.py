"""k-means, k-medians and mixtures: objectives, kernels, rings and learners."""
