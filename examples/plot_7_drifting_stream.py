"""
The number of clusters follows a drifting stream
================================================

`PACO` clusters a stream row by row and estimates how many clusters there are now. It is told neither their number nor
when it changes; ``half_life`` says after how many rows the weight of a row has halved.
"""

# %%
# Two clusters, then three, then five: 3,000 rows of each.

import matplotlib.pyplot as plt
import numpy as np

from tithe.online import PACO

rng = np.random.default_rng(0)
true_k = [2, 3, 5]
centers = [np.array([[0, 0], [10, 0]]), np.array([[0, 0], [10, 0], [5, 9]])]
centers.append(np.array([[0, 0], [10, 0], [5, 9], [0, 18], [10, 18]]))
stages = [c[rng.integers(len(c), size=3000)] + rng.normal(scale=0.8, size=(3000, 2)) for c in centers]

# %%
# Rows come in batches. A row is predicted before it is learned from.

model = PACO(half_life=600, random_state=0)
for batch in np.array_split(np.concatenate(stages), 90):
    model.partial_fit(batch)
print(f"clusters now: {model.n_clusters_}")
print(model.cluster_centers_.round(1))

# %%
# The number of clusters after each row, beside the true one.

k = np.asarray(model.history_["k"])
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.step(np.arange(len(k)), k, label="PACO", linewidth=1)
axes.step([0, 3000, 6000, 9000], [*true_k, true_k[-1]], where="post", linestyle="--", color="0.4", label="true number")
axes.set(xlabel="rows so far", ylabel="clusters", ylim=(0, 8))
axes.legend(loc="upper left")
plt.show()
