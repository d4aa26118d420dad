"""What the paper on PAC-Bayesian online clustering states with a number, beside what PACO does.

    python benchmarks/paco.py --paper

The source has theorems and an algorithm, but its section of numerical studies is empty: there are rates, constants and
formulas to confirm, and no table. Rows are three Gaussian blobs in two columns, T of them, inside a ball of radius R.
Every learner is the preset "theory"; regret is the loss over that of k-means on all rows in hindsight.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from common import save, show
from tithe.online import PACO

LENGTHS = (125, 250, 500, 1000, 2000)
P, D, TRUE_K, RADIUS = 10, 2, 3, 15.0
PLACES = np.array([[-8.0, -4.0], [8.0, -4.0], [0.0, 8.0]])
MULTIPLES = (0.1, 1.0, 10.0)  # of the fixed lambda of Corollary 2, for Corollary 1


def rows_of(T: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = PLACES[rng.integers(TRUE_K, size=T)] + rng.normal(size=(T, D))
    return X * np.minimum(1.0, RADIUS / np.linalg.norm(X, axis=1, keepdims=True))


def learner(seed: int, **given: Any) -> PACO:
    return PACO(P, preset="theory", radius=RADIUS, random_state=seed, **given)


def hindsight(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss of the best k centres for k = 1 .. p, and the centres for the true k."""
    fits = [KMeans(k, n_init=3, random_state=0).fit(X) for k in range(1, P + 1)]
    return np.array([fit.inertia_ for fit in fits]), fits[TRUE_K - 1].cluster_centers_


def theorem_side(X: np.ndarray, losses: np.ndarray, centers: np.ndarray, rates: np.ndarray) -> float:
    """The right side of Theorem 1 or 2 for centres drawn uniformly round the best ones; lambda_0 .. lambda_{T-1}, T."""
    rng, T, k = np.random.default_rng(0), len(X), len(centers)
    tau = min(RADIUS, math.sqrt((D + 2) / (2.0 * rates[-1] * T)))
    total, draws = 0.0, 50
    for _ in range(draws):
        noise = rng.normal(size=(k, D))
        noise *= tau * rng.random((k, 1)) ** (1.0 / D) / np.linalg.norm(noise, axis=1, keepdims=True)
        loss = ((X[:, None] - (centers + noise)) ** 2).sum(axis=2).min(axis=1)
        total += float(loss.sum() + (rates[:-1] / 2.0 * (loss - losses) ** 2).sum()) / draws
    prior = np.exp(-np.arange(1.0, P + 1.0))
    return total + (k * D * math.log(2.0 * RADIUS / tau) - math.log(prior[k - 1] / prior.sum())) / rates[-1]


def regrets(seeds: int) -> dict[str, Any]:
    """Regret, bounds and both sides of the theorems for every T: means over seeds."""
    table: dict[str, Any] = {"fixed": [], "falling": []}
    for T in LENGTHS:
        runs: dict[str, list[list[float]]] = {"fixed": [], "falling": []}
        for seed in range(seeds):
            X = rows_of(T, seed)
            best, centers = hindsight(X)
            least = (D + 2) / (2.0 * RADIUS**2)
            rates = {
                "fixed": np.full(T + 1, least / math.sqrt(T)),
                "falling": least / np.sqrt(np.maximum(1, np.arange(T + 1))),
            }
            for kind, given in (("fixed", {"horizon": T}), ("falling", {})):
                model = learner(seed, **given).partial_fit(X)
                losses = model.history_["loss"]
                bound = float((best + model.regret_bound()).min())
                side = theorem_side(X, losses, centers, rates[kind])
                runs[kind].append([float(losses.sum()), float(best[TRUE_K - 1]), bound, side])
        for kind, values in runs.items():
            loss, best_loss, bound, side = np.mean(values, axis=0)
            table[kind].append(
                {
                    "T": T,
                    "loss": loss,
                    "regret": loss - best_loss,
                    "hindsight": best_loss,
                    "corollary": bound,
                    "theorem": side,
                }
            )
    return table


def slope(points: list[dict[str, float]]) -> float:
    """Of the regret in log T."""
    return float(np.polyfit(np.log([p["T"] for p in points]), np.log([p["regret"] for p in points]), 1)[0])


def corollary_1(seeds: int, T: int = 500) -> float:
    """The largest loss over the bound of Corollary 1, for several fixed lambdas."""
    worst = 0.0
    for multiple in MULTIPLES:
        rate = multiple * (D + 2) / (2.0 * RADIUS**2 * math.sqrt(T))
        losses, bounds = [], []
        for seed in range(seeds):
            X = rows_of(T, seed)
            model = learner(seed, inverse_temperature=rate).partial_fit(X)
            losses.append(model.history_["loss"].sum())
            bounds.append(float((hindsight(X)[0] + model.regret_bound()).min()))
        worst = max(worst, float(np.mean(losses) / np.mean(bounds)))
    return worst


def exact_shares(rows: np.ndarray, seeds: int, rate: float, n_grid: int = 81) -> np.ndarray:
    """Shares of k = 1 and 2 in the last prediction of Algorithm 1 with exact draws: one column, centres on a grid."""
    grid = (np.arange(n_grid) + 0.5) / n_grid * 4.0 - 2.0
    one, two = np.meshgrid(grid, grid)
    prior = np.concatenate([np.full(n_grid, 1.0 / n_grid), np.full(one.size, math.exp(-1.0) / one.size)])
    shares = np.zeros(2)
    for seed in range(seeds):
        rng, S = np.random.default_rng(seed), np.zeros(len(prior))
        for x in rows:
            law = prior * np.exp(-rate * (S - S.min()))
            at = rng.choice(len(law), p=law / law.sum())
            losses = np.concatenate([(grid - x) ** 2, np.minimum((one - x) ** 2, (two - x) ** 2).ravel()])
            S += losses + rate / 2.0 * (losses - losses[at]) ** 2
        law = prior * np.exp(-rate * (S - S.min()))
        shares += [law[:n_grid].sum() / law.sum() / seeds, law[n_grid:].sum() / law.sum() / seeds]
    return shares


def samplers(seeds: int, rate: float = 0.2, T: int = 20) -> dict[str, dict[str, float]]:
    """How far the share of k = 2 is from that of exact draws, and the acceptance, for each kernel."""
    rows = np.resize([0.9, -0.8, 0.7, -0.9], T)
    exact = exact_shares(rows, seeds, rate)
    results = {}
    for kernel in ("paper", "symmetric", "birth_death"):
        ks, accepted = [], []
        for seed in range(seeds):
            model = PACO(2, preset="theory", radius=1.0, kernel=kernel, inverse_temperature=rate, random_state=seed)
            model.partial_fit(rows[:, None])
            ks.append(model.n_clusters_)
            accepted.append(model.history_["acceptance"][1:].mean())
        gap = abs(float(np.mean(np.array(ks) == 2)) - float(exact[1]))
        results[kernel] = {"gap": gap, "acceptance": float(np.mean(accepted)), "exact": float(exact[1])}
    return results


def first_draws(seeds: int) -> float:
    """The largest gap between the number of first centres and q(k), over seeds."""
    ks = [int(learner(seed, n_samples=1).partial_fit(np.zeros((1, D))).history_["k"][0]) for seed in range(seeds)]
    prior = np.exp(-np.arange(1.0, P + 1.0))
    return float(np.abs(np.bincount(ks, minlength=P + 1)[1:] / seeds - prior / prior.sum()).max())


def verdict(published: str, holds: bool) -> str:
    """Whether a claim is confirmed, if it was made."""
    return "-" if published.startswith("not") else "yes" if holds else "no"


def paper(seeds: int) -> None:
    """Every claim with a number: a table, and results/paco_paper.json."""
    table, chains = regrets(seeds), samplers(50 * seeds)
    fixed, falling = table["fixed"], table["falling"]

    def largest(points: list[dict[str, float]], side: str) -> float:
        return max(p["loss"] / p[side] for p in points)

    def constant(points: list[dict[str, float]], k: int = TRUE_K) -> float:
        return max(p["regret"] / (k * math.sqrt(p["T"]) * math.log(p["T"])) for p in points)

    def proved(points: list[dict[str, float]]) -> float:
        return max((p["corollary"] - p["hindsight"]) / (TRUE_K * math.sqrt(p["T"]) * math.log(p["T"])) for p in points)

    rate_slope = slope([{"T": T, "regret": math.sqrt(T) * math.log(T)} for T in LENGTHS])
    claims = [
        ["Theorem 1: loss over its right side, largest of all T", "<= 1", largest(fixed, "theorem"), 1.0],
        ["Corollary 1, lambda times 0.1, 1, 10: loss over bound", "<= 1", corollary_1(seeds), 1.0],
        ["Corollary 2, lambda = (d+2)/(2 sqrt(T) R^2): loss over bound", "<= 1", largest(fixed, "corollary"), 1.0],
        ["Corollary 2: slope of the regret in log T", f"sqrt(T) log T: {rate_slope:.2f}", slope(fixed), rate_slope],
        ["J: regret <= J k sqrt(T) log T, fixed lambda", f"J <= {proved(fixed):.4g}", constant(fixed), proved(fixed)],
        ["Theorem 2: loss over its right side, largest of all T", "<= 1", largest(falling, "theorem"), 1.0],
        ["Corollary 3, lambda_t: loss over bound", "<= 1", largest(falling, "corollary"), 1.0],
        ["Corollary 3: slope of the regret in log T", f"sqrt(T) log T: {rate_slope:.2f}", slope(falling), rate_slope],
        ["J, lambda_t", f"J <= {proved(falling):.4g}", constant(falling), proved(falling)],
        ["first draw: number of centres, largest gap to q(k) ~ exp(-eta k)", "0", first_draws(300), 0.07],
        ["Algorithm 3, q = 1/3, tau = 1/sqrt(pt): gap of P(k = 2) to exact draws", "0", chains["paper"]["gap"], 0.07],
        ["the same, acceptance", "not given", chains["paper"]["acceptance"], 1.0],
        ["kernel in any order: gap of P(k = 2)", "not in the paper", chains["symmetric"]["gap"], 0.07],
        ["birth and death: gap of P(k = 2)", "not in the paper", chains["birth_death"]["gap"], 0.07],
        ["mass of the prior of k = 2 as printed (without the power k)", "1", math.pi, 1.0],
        ["lambda_1 over lambda_0 = 1 if R = 1 and d = 2; Theorem 2 wants no rise", "<= 1", 2.0, 1.0],
    ]  # fmt: skip
    rows = [[claim, published, ours, verdict(published, ours <= limit)] for claim, published, ours, limit in claims]
    show(f"{seeds} seeds, T up to {LENGTHS[-1]:,}, d = {D}, p = {P}", ["claim", "published", "ours", "confirmed"], rows)
    for kind, points in table.items():
        columns = ["T", "loss", "regret", "hindsight", "corollary", "theorem"]
        show(f"lambda {kind}", columns, [[p[name] for name in columns] for p in points])
    names = ("claim", "published", "ours", "confirmed")
    records = [
        {**dict(zip(names, row, strict=True)), "command": f"python benchmarks/paco.py --paper --seeds {seeds}"}
        for row in rows
    ]
    save("paco_paper", {"seeds": seeds, "claims": records, "regret": table, "samplers": chains})
