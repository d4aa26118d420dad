"""
Regression: fewer rows for the same loss
========================================

Ridge, Poisson and Huber regression work as logistic regression does. Here, ridge regression is fitted on coresets of
several sizes without polish, to show what the choice of rows and their weights bring.
"""

# %%
# 200,000 rows whose columns have heavy tails: a few rows have much influence on the coefficients.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

import tithe

rng = np.random.default_rng(0)
X = rng.standard_t(3, size=(200_000, 15))
y = X @ rng.normal(size=15) + 3 * rng.normal(size=len(X))


def loss(model):
    """The objective of ridge regression on all rows."""
    return ((y - X @ model.coef_ - model.intercept_) ** 2).sum() + (model.coef_**2).sum()


smallest = loss(Ridge(alpha=1.0).fit(X, y))

# %%
# How far the loss on all rows is above the smallest, for ridge regression on rows drawn at random and on coresets.

sizes, n_seeds = [200, 400, 800, 1600, 3200], 10
excess = {"random rows": [], "tithe, not calibrated": [], "tithe": []}
for size in sizes:
    results = {name: [] for name in excess}
    for seed in range(n_seeds):
        rows = np.random.default_rng(seed).choice(len(X), size, replace=False)
        share = np.full(size, len(X) / size)  # weights keep the meaning of the penalty
        results["random rows"].append(loss(Ridge(alpha=1.0).fit(X[rows], y[rows], sample_weight=share)))
        for name, calibrate in [("tithe, not calibrated", False), ("tithe", True)]:
            coreset = tithe.build_coreset(
                X, y, objective="least_squares", coreset_size=size, calibrate=calibrate, random_state=seed
            )
            results[name].append(loss(Ridge(alpha=1.0).fit(coreset.X, coreset.y, sample_weight=coreset.weights())))
    for name, losses in results.items():
        excess[name].append(np.median(losses) / smallest - 1)

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, values in excess.items():
    axes.loglog(sizes, values, "o-", label=name)
axes.set(xlabel="rows kept, of 200,000", ylabel="loss on all rows above the smallest", xticks=sizes)
axes.set_xticks(sizes, [str(size) for size in sizes])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# The learner also polishes the solution and certifies it. With a squared loss the certificate is exact.

print(tithe.CoresetRidge(alpha=1.0, random_state=0).fit(X, y).certificate_)

# %%
# Counts have a regression of their own, and so do targets with outliers.

counts = rng.poisson(np.exp(0.1 * X[:, 0] + 1))
print(tithe.CoresetPoissonRegressor(random_state=0).fit(X[:, :3], counts).coef_.round(3))
spoilt = np.where(rng.random(len(X)) < 0.05, 500.0, y)
print(np.abs(tithe.CoresetHuberRegressor(random_state=0).fit(X, spoilt).coef_ - Ridge().fit(X, y).coef_).max().round(3))
