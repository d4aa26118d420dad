"""
Few labels, many rows
=====================

`SemiSupervisedODMClassifier` learns from rows of which only some have a label. It helps where classes have a gap
between them: five labels of each class are enough for two moons. Where classes overlap it brings little.
"""

# %%
# 300 rows; ten of them have a label, all others have -1.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from tithe.odm import ODMClassifier, SemiSupervisedODMClassifier

X, truth = make_moons(300, noise=0.06, random_state=0)
labelled = np.concatenate([np.flatnonzero(truth == label)[:5] for label in (0, 1)])
y = np.full(len(X), -1)
y[labelled] = truth[labelled]

# %%
# A machine of the ten rows, and one of all of them.

machines = {
    "10 labels alone": ODMClassifier(),
    "10 labels and 290 rows": SemiSupervisedODMClassifier(lam_unlabeled=1000, gamma="neighbors", random_state=0),
}

machines["10 labels alone"].fit(X[labelled], y[labelled])
machines["10 labels and 290 rows"].fit(X, y)

# %%
# The labels that both give to all rows. Rows with a label are drawn large.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
for axes, (name, machine) in zip(panels, machines.items(), strict=True):
    predicted = machine.predict(X)
    print(f"{name}: {np.mean(predicted == truth):.1%} of the rows are right")
    axes.scatter(*X.T, c=np.where(predicted == 1, "tab:blue", "tab:red"), s=8, alpha=0.5)
    axes.scatter(*X[labelled].T, c=np.where(truth[labelled] == 1, "tab:blue", "tab:red"), s=60, edgecolors="black")
    axes.set(title=f"{name}: {np.mean(predicted == truth):.0%} right", xticks=[], yticks=[])
plt.show()
