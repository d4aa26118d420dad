"""
Rare groups that a random sample loses
======================================

Logs of network connections have a few groups that hold nearly all rows, and many small ones: an attack may be sixty
rows among two hundred thousand. A random sample of the rows almost never holds them. A coreset of the same size does,
because a row that lies far from the others is drawn with a higher probability and gets a lower weight.
"""

# %%
# Four groups hold nearly all of 200,000 rows. Eight groups have 60 rows each.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

import tithe

rng = np.random.default_rng(0)
large = np.array([[-8.0, -4.0], [7.0, -5.0], [-6.0, 5.0], [9.0, 4.0]])
angles = np.linspace(0.0, 2 * np.pi, 8, endpoint=False)
rare = np.column_stack([60 * np.cos(angles), 40 * np.sin(angles)])
sizes = [49_880] * 4 + [60] * 8
group = np.repeat(np.arange(12), sizes)
middles = np.concatenate([large, rare])
X = middles[group] + 0.6 * rng.normal(size=(len(group), 2))

# %%
# Keep 400 rows: once drawn at random, once as a coreset for k-means with 12 clusters.

objective = tithe.objectives.KMeansObjective(n_clusters=12)
sample = rng.choice(len(X), 400, replace=False)
coreset = tithe.build_coreset(X, objective=objective, coreset_size=400, random_state=0)
print("groups among the rows of the random sample:", len(np.unique(group[sample])))
print("groups among the rows of the coreset:      ", len(np.unique(group[coreset.row_ids()])))

# %%
# Fit k-means on both, and compare what the centres cost on all rows. A group is found if a centre lies in it. The fit
# on all rows is the best of ten.


def cost(centers):
    """The sum of squared distances of all rows to the nearest centre."""
    return objective.cost(tithe.Block(X=X), centers).sum()


def n_found(centers):
    """The number of groups with a centre within three standard deviations of their middle."""
    return int((np.linalg.norm(middles[:, None] - centers, axis=2).min(axis=1) < 3 * 0.6).sum())


on_all_rows = KMeans(12, n_init=10, random_state=0).fit(X)
on_sample = KMeans(12, n_init=10, random_state=0).fit(X[sample])
on_coreset = tithe.CoresetKMeans(12, coreset_size=400, polish=0, random_state=0).fit(X)
for name, fit in [("all rows", on_all_rows), ("the random sample", on_sample), ("the coreset", on_coreset)]:
    found, ratio = n_found(fit.cluster_centers_), cost(fit.cluster_centers_) / on_all_rows.inertia_
    print(f"k-means on {name}: {found} of 12 groups found, {ratio:.2f} times the cost of a fit on all rows")
print(on_coreset.certificate_)

# %%
# The area of a point is its weight: a row of a large group stands for many rows, a row of a rare group for few.


def panel(axes, title, rows, area, centers):
    axes.scatter(*X[::20].T, s=1, color="0.8", linewidths=0)
    axes.scatter(*X[group >= 4].T, s=1, color="0.8", linewidths=0)
    axes.scatter(*X[rows].T, s=area, color="tab:blue", alpha=0.6, linewidths=0)
    axes.scatter(*centers.T, marker="x", s=36, color="tab:red")
    axes.set_title(f"{title}\n{n_found(centers)} of 12 groups found")
    axes.set(xticks=[], yticks=[])


figure, (left, right) = plt.subplots(1, 2, figsize=(5.6, 3.2), layout="constrained", sharex=True, sharey=True)
panel(left, "400 rows at random", sample, 14, on_sample.cluster_centers_)
area = np.clip(14 * coreset.weights() / coreset.weights().mean(), 3, None)
panel(right, "400 rows by tithe", coreset.row_ids(), area, on_coreset.cluster_centers_)
figure.supxlabel(
    "grey: all 200,000 rows   blue: rows kept, area = weight\nred: centres of k-means on the rows kept", fontsize=10
)
plt.show()
