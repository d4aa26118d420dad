"""
Logistic regression on a million rows, with a certificate
=========================================================

`CoresetLogisticRegression` fits a coreset of the rows, then improves the solution with a few passes over all rows until
the loss is proved or estimated to be within ``tol`` of the smallest possible one. The certificate says how far it is.
"""

# %%
# A million rows with 20 columns.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from tithe import CoresetLogisticRegression

rng = np.random.default_rng(0)
X = rng.standard_normal((1_000_000, 20), dtype=np.float32)
X[:, 10:] *= rng.random(10, dtype=np.float32) * 3
y = X @ rng.normal(scale=0.3, size=20) + rng.logistic(size=len(X)) > 1
CoresetLogisticRegression(random_state=0).fit(X[:20_000], y[:20_000])  # compiles the loops before time is taken

# %%
# Fit scikit-learn on all rows, and tithe to two tolerances.

models = {
    "scikit-learn, all rows": LogisticRegression(tol=1e-6, max_iter=1000),
    "tithe, tol=1e-3": CoresetLogisticRegression(tol=1e-3, random_state=0),
    "tithe, tol=1e-6": CoresetLogisticRegression(tol=1e-6, random_state=0),
}
seconds, losses = {}, {}
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X, y)
    seconds[name] = time.perf_counter() - start
    losses[name] = log_loss(y, model.predict_proba(X))

# %%
# The certificate is a sentence, and a record with the same numbers.

certificate = models["tithe, tol=1e-6"].certificate_
print(certificate)
print(f"kind: {certificate.kind}, relative excess of the loss: {certificate.relative_excess:.1e}")
for name in models:
    print(f"{name:24} {seconds[name]:6.2f} s   log-loss {losses[name]:.7f}")

# %%
# Seconds depend on the machine and on what else it does; the ratio is what to look at.

figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
bars = axes.barh(list(seconds), list(seconds.values()), color=["0.6", "tab:blue", "tab:blue"])
slowest = seconds["scikit-learn, all rows"]
notes = [f"{t:.1f} s" + (f", {slowest / t:.0f} times as fast" if t < slowest else "") for t in seconds.values()]
axes.bar_label(bars, notes, padding=4)
axes.set(xlabel="seconds", xlim=(0, 1.5 * max(seconds.values())))
axes.invert_yaxis()
plt.show()
