"""
The same job on Dask
====================

The calls that run on one machine run on a Dask cluster, with the same bits. Here the cluster is made of two workers
in this process. Without Dask (``pip install 'tithe[dask]'``) the example does the first half.
"""

# %%
# A folder of Parquet files, as a cluster would share it.

import tempfile
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import tithe

rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp()) / "data"
folder.mkdir()
for part in range(4):
    X = rng.normal(size=(50_000, 4))
    label = X @ [1.0, -0.5, 0.2, 0.0] + rng.logistic(size=len(X)) > 0
    pd.DataFrame(X, columns=list("abcd")).assign(y=label).to_parquet(folder / f"part-{part}.parquet")

# %%
# On this machine, with threads.

source = tithe.open_dataset(folder, target="y")
here = tithe.CoresetLogisticRegression(random_state=0).fit(source)
print(here.certificate_)

# %%
# On a cluster. Workers read the files themselves; only coresets travel.

coefficients = {"this machine": here.coef_[0]}
if find_spec("distributed") is None:
    print("Dask is not installed: this part is left out.")
else:
    from distributed import Client

    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None):
        there = tithe.CoresetLogisticRegression(engine="dask", random_state=0).fit(source)
    coefficients["Dask"] = there.coef_[0]
    print("same bits:", np.array_equal(here.coef_, there.coef_))

# %%

figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
for place, (name, values) in enumerate(coefficients.items()):
    axes.bar(np.arange(4) + 0.4 * place, values, width=0.4, label=name)
axes.set_xticks(np.arange(4) + 0.2, list("abcd"))
axes.set(ylabel="coefficient")
axes.legend()
plt.show()
