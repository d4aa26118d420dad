"""
A hyper-parameter search on coresets
====================================

A search fits one model for each candidate and fold. `CoresetSearchCV` fits all of them on coresets, each fold's on
rows that do not hold the fold, and scores them on rows of the fold. Its result reads like that of `GridSearchCV`.
"""

# %%
# 40,000 rows in which half of the columns say nothing about the label, so that the penalty matters.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from tithe import CoresetLogisticRegression, CoresetSearchCV

rng = np.random.default_rng(0)
X = rng.normal(size=(40_000, 30))
y = X[:, :5] @ rng.normal(size=5) + rng.logistic(scale=2.0, size=len(X)) > 0
candidates = {"C": np.logspace(-6, 0, 9)}

# %%
# The same candidates and folds with both.

start = time.perf_counter()
on_all_rows = GridSearchCV(LogisticRegression(), candidates, scoring="neg_log_loss", cv=3, refit=False).fit(X, y)
seconds_all = time.perf_counter() - start
start = time.perf_counter()
on_coresets = CoresetSearchCV(CoresetLogisticRegression(random_state=0), candidates, scoring="neg_log_loss", cv=3)
on_coresets.fit(X, y)
seconds_coresets = time.perf_counter() - start
print(f"GridSearchCV:    C = {on_all_rows.best_params_['C']:.1e}, {seconds_all:.1f} s")
print(f"CoresetSearchCV: C = {on_coresets.best_params_['C']:.1e}, {seconds_coresets:.1f} s")

# %%
# The curves of the scores.

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for search, label, style in [(on_all_rows, "all rows", "o-"), (on_coresets, "coresets", "x--")]:
    axes.semilogx(candidates["C"], -search.cv_results_["mean_test_score"], style, label=label)
axes.set(xlabel="C", ylabel="log-loss on the held-out folds")
axes.legend()
plt.show()
