"""k-means, k-medians and mixtures of normal distributions: objectives, loops, learners, and the number of clusters."""
