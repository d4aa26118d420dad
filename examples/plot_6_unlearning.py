"""
Unlearning a customer
=====================

A customer asks for their rows to be deleted, and for the model to forget them. `IncrementalODMClassifier` follows the
solution while the rows leave: the result is the model that was never given them, with a certificate.
"""

# %%
# Rows of many customers. Those of customer 17 lie in one corner and have labels of their own.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from tithe.odm import IncrementalODMClassifier

rng = np.random.default_rng(0)
X, y = make_moons(300, noise=0.2, random_state=0)
X[:12] = rng.normal(loc=[1.9, 1.0], scale=0.12, size=(12, 2))
y[:12] = 0
customer = np.where(np.arange(len(X)) < 12, 17, rng.integers(100, 140, size=len(X)))

machine = IncrementalODMClassifier(gamma=2.0).partial_fit(X, y)
grid = np.stack(np.meshgrid(np.linspace(-1.7, 2.7, 120), np.linspace(-1.2, 1.7, 90)), axis=-1)
before = machine.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])

# %%
# Forget the rows of customer 17. The ids of the rows are their positions in the order in which they came.

machine.forget(np.flatnonzero(customer == 17))
after = machine.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])
print(machine.unlearning_)

# %%
# A model that is trained without these rows has the same decision values. What one row counts was fixed with the first
# batch: ``lam`` divided by 300. The same cost of a row takes a smaller ``lam`` for fewer rows.

others = customer != 17
retrained = IncrementalODMClassifier(gamma=2.0, lam=machine.lam * others.mean()).partial_fit(X[others], y[others])
difference = np.abs(after.ravel() - retrained.decision_function(grid.reshape(-1, 2))).max()
print(f"largest difference of a decision value to the model trained without them: {difference:.1e}")

# %%
# The decision boundary before and after.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for axes, values, title, shown in [
    (panels[0], before, "with customer 17", np.ones(len(X), bool)),
    (panels[1], after, "after forgetting customer 17", others),
]:
    axes.contourf(grid[..., 0], grid[..., 1], values, levels=[-9, 0, 9], colors=["#fde0dd", "#deebf7"])
    axes.scatter(*X[shown].T, c=np.where(y[shown] == 1, "tab:blue", "tab:red"), s=8)
    axes.set(title=title, xticks=[], yticks=[])
panels[0].scatter(*X[:12].T, s=60, facecolors="none", edgecolors="black", linewidths=0.8, label="customer 17")
panels[0].legend(loc="lower left")
plt.show()
