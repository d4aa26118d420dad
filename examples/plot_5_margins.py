"""
Margins of an ODM and of an SVM
===============================

A support vector machine makes the smallest margin large. An optimal margin distribution machine (ODM) makes all margins
lie near 1: it has a penalty for margins above the band around 1 too, so that their variance is small.
"""

# %%
# Two classes that overlap.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from tithe.odm import ODMClassifier

X, y = make_moons(1000, noise=0.3, random_state=0)
X_test, y_test = make_moons(4000, noise=0.3, random_state=1)
machines = {"ODM": ODMClassifier(lam=1000, gamma=2.0), "SVM": SVC(C=10, gamma=2.0)}

# %%
# The margin of a row is its decision value, with a minus sign if the row is on the wrong side. Only the shape of the
# distribution can be compared between machines, so margins are divided by their mean.

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, machine in machines.items():
    machine.fit(X, y)
    margins = machine.decision_function(X_test) * np.where(y_test == 1, 1, -1)
    spread = margins.var() / margins.mean() ** 2
    print(f"{name}: accuracy {machine.score(X_test, y_test):.3f}, variance of the margins / mean^2 {spread:.2f}")
    axes.hist(margins / margins.mean(), bins=60, histtype="step", density=True, label=name)
axes.axvline(0, color="0.6", linewidth=1)
axes.set(xlabel="margin / mean margin, of test rows", ylabel="density")
axes.legend(loc="upper left")
plt.show()

# %%
# The ODM keeps the distribution of the margins of its training rows.

distribution = machines["ODM"].margin_distribution_
print(f"mean {distribution.mean:.2f}, variance {distribution.variance:.2f}")
