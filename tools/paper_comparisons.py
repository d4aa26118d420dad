"""Values that a claim of docs/papers.md needs from many places of the kept results, by name: see tools/papers.py.

Each function returns its values by name. A cell is one data set reduced to one size, or one picture reduced to one
size. Two scores are called the same if they differ by at most ``WITHIN``, or by two standard errors of the difference;
errors within ``NEAR`` of the larger one. Of times only the direction counts: faster or slower by two standard errors.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from quoted_numbers import load
from scipy import stats

WITHIN = 0.02  # scores that differ by at most this are called the same
NEAR = 0.2  # so are errors and rates that differ by at most this share of the larger one
ERRORS = 2.0  # standard errors that a difference must have not to be called chance
SETS = {  # the sets of the logistic paper that are there, and their results
    "Covertype": "logistic_paper_covtype",
    "w8a": "logistic_paper_w8a",
    "ijcnn1": "logistic_paper_ijcnn1",
}
REGRESSORS = ("RDSF ols", "RDSF ridge", "RDSF lasso", "RDSF elasticnet")

Cell = dict[str, dict[str, Any]]  # a row of results by the name of its method
Values = dict[str, Any]


def near(first: float, second: float) -> bool:
    return abs(first - second) <= NEAR * max(abs(first), abs(second))


def cells(wanted: str, *methods: str) -> list[Cell]:
    """The cells of a set, or of "all" sets; only those that have all the methods."""
    names = list(SETS) if wanted == "all" else [wanted]
    found = []
    for name in names:
        results = load(SETS[name])
        for table in results["tables"].values():
            found.append({row["method"]: {**row, "repetitions": results["repetitions"]} for row in table})
    return [cell for cell in found if set(methods) <= set(cell)]


def standard_error(row: dict[str, Any], score: str) -> float:
    """Of the mean of a score over the repetitions; 0 where these are not known."""
    return float(row.get(f"{score}_std", 0.0) / math.sqrt(max(1, row.get("repetitions", 1) - 1)))


def chance(first: dict[str, Any], second: dict[str, Any], score: str) -> float:
    """The largest difference of two scores that is called the same."""
    both = math.hypot(standard_error(first, score), standard_error(second, score))
    return max(WITHIN, ERRORS * both)


def direction(row: dict[str, Any]) -> int:
    """Beside all rows: 1 faster, -1 slower, 0 neither by two standard errors of the logarithm of the ratio."""
    log, error = math.log(row["speedup"]), standard_error(row, "log_speedup")
    return 0 if abs(log) <= ERRORS * error else (1 if log > 0.0 else -1)


# -- logistic regression -----------------------------------------------------------------------------


def differences(wanted: str, first: str, second: str, score: str) -> Values:
    """Score of the first method less that of the second, by cell; which of them are more than chance."""
    pairs = [(cell[first], cell[second]) for cell in cells(wanted, first, second)]
    found = [(one[score] - other[score], chance(one, other, score)) for one, other in pairs]
    return {
        "cells": len(found),
        "least": min(found)[0],
        "largest": max(found)[0],
        "widest": max(abs(difference) for difference, _ in found),
        "better": sum(difference > limit for difference, limit in found),
        "not_worse": sum(difference >= -limit for difference, limit in found),
    }


def seconds(wanted: str, first: str, second: str) -> Values:
    """Time of the first method over that of the second, by cell."""
    found = [cell[first]["seconds"] / cell[second]["seconds"] for cell in cells(wanted, first, second)]
    return {"cells": len(found), "least": min(found), "median": statistics.median(found), "largest": max(found)}


def fastest() -> Values:
    """How often a method is faster than both ACvS and RDSF, or than one of them."""
    accelerated, others = ("ACvS", "RDSF ols"), ("Full", "CABLR")
    found = cells("all", *accelerated, *others, "URS, unweighted")

    def beats(cell: Cell, method: str, than: str) -> bool:
        return cell[method]["seconds"] < cell[than]["seconds"]

    return {
        "cells": len(found),
        "urs": sum(all(beats(cell, "URS, unweighted", than) for than in accelerated) for cell in found),
        "others": sum(any(beats(cell, m, than) for m in others for than in accelerated) for cell in found),
    }


def accelerations(method: str) -> Values:
    """How many times as fast as all rows, over all sets and sizes."""
    found = [cell[method]["speedup"] for cell in cells("all", method)]
    return {"least": min(found), "largest": max(found)}


def clustering() -> Values:
    """The share of CABLR's time that its clusters take, by cell, and how often it is slower than all rows."""
    found = [cell["CABLR"] for cell in cells("all", "CABLR")]
    shares = [row["passes"]["clustering"] / row["pass"] for row in found]
    slower = sum(direction(row) < 0 for row in found)
    return {"cells": len(found), "least": min(shares), "largest": max(shares), "slower": slower}


def regressors() -> Values:
    """How often least squares is the best of the regressors, or within WITHIN of it; the spread of their accuracies."""
    found = cells("all", *REGRESSORS)
    best_of = [
        (cell["RDSF ols"], max((cell[name] for name in REGRESSORS), key=lambda row, score=score: row[score]), score)
        for cell in found
        for score in ("aupr", "auroc", "f1")
    ]
    behind = [(best[score] - ols[score], chance(ols, best, score)) for ols, best, score in best_of]
    accuracies = [[cell[name]["accuracy"] for name in REGRESSORS] for cell in found]
    best = Counter(
        max(REGRESSORS, key=lambda name, cell=cell, score=score: cell[name][score])
        for cell in found
        for score in ("aupr", "auroc", "f1")
    )
    return {
        "cells": len(behind),
        "half": len(behind) / 2,
        "best": best["RDSF ols"],
        "others": ", ".join(f"{name.removeprefix('RDSF ')} {best[name]}" for name in REGRESSORS[1:]),
        "close": sum(difference <= limit for difference, limit in behind),
        "accuracies": len(accuracies),
        "alike": sum(max(values) - min(values) <= WITHIN for values in accuracies),
        "widest": max(max(values) - min(values) for values in accuracies),
    }


def growth() -> Values:
    """Accuracy at the largest size less that at the smallest, over sets and methods; the same for gaps to URS."""
    methods = ("CABLR", "ACvS", "RDSF ols", "URS, unweighted")
    rises, gaps = [], []
    for name in SETS:
        first, *_, last = cells(name, *methods)
        rises += [last[method]["accuracy"] - first[method]["accuracy"] for method in methods]
        gaps += [
            [abs(cell[method]["accuracy"] - cell["URS, unweighted"]["accuracy"]) for cell in (first, last)]
            for method in methods[:-1]
        ]
    return {
        "pairs": len(rises),
        "rise": sum(rise > 0.0 for rise in rises),
        "gaps": len(gaps),
        "close": sum(last < first for first, last in gaps),
    }


def samples() -> Values:
    """ROC of RDSF by the size b of its sample."""
    (table,) = load("logistic_paper_sweep_b_ijcnn1")["tables"].values()
    found = [row["auroc"] for row in table if row["method"].startswith("RDSF ols, b = ")]
    return {"least": min(found), "largest": max(found), "sizes": len(found)}


# -- dictionaries ------------------------------------------------------------------------------------


def _planted(atoms: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """All rows; those with more signals than are drawn; the number of trials."""
    results = load("dictionary_paper_synthetic")
    rows, drawn = results[f"synthetic {atoms}"], results["options"]["coreset_size"]
    return rows, [row for row in rows if row["n"] > drawn], results["options"]["trials"]


def planted(atoms: str) -> Values:
    """Planted atoms with entries from ``atoms`` (0 or -1) to 1: how often the coreset does as well, and varies less."""
    rows, reduced, trials = _planted(atoms)
    means = {way: [row[way]["distance"]["mean"] for row in rows] for way in ("all", "coreset", "uniform")}
    spread = {way: [row[way]["distance"]["variance"] for row in rows] for way in means}
    kept = [row["coreset"]["distance"]["mean"] for row in reduced]
    ratios = [row["coreset"]["distance_to_all"] for row in rows]

    def as_good(way: str) -> int:
        return sum(a <= b or near(a, b) for a, b in zip(means[way], means["all"], strict=True))

    def varies_less(way: str) -> int:
        return sum(a < b for a, b in zip(spread["coreset"], spread[way], strict=True))

    return {
        "numbers": len(rows),
        "half": len(rows) / 2,
        "trials": trials,
        "first": rows[0]["n"],
        "last": rows[-1]["n"],
        "from": reduced[0]["n"],
        "coreset_as_good": as_good("coreset"),
        "uniform_as_good": as_good("uniform"),
        "middle": statistics.median(ratios),
        "less_than_all": varies_less("all"),
        "less_than_uniform": varies_less("uniform"),
        "least": min(kept),
        "largest": max(kept),
        "chance": _same_mean(kept, [row["coreset"]["distance"]["variance"] for row in reduced], trials),
    }


def _same_mean(means: list[float], variances: list[float], trials: int) -> float:
    """The chance of means that differ as much if they were all one: analysis of variance."""
    between = trials * statistics.variance(means)
    within = statistics.mean(variances) * trials / (trials - 1)
    return float(stats.f.sf(between / within, len(means) - 1, len(means) * (trials - 1)))


def slope(atoms: str) -> Values:
    """By which power of the number of signals the ratio of times grows."""
    _, rows, _ = _planted(atoms)
    points = [(math.log(row["n"]), math.log(row["coreset"]["times_as_fast"])) for row in rows]
    return {"power": float(np.polyfit(*zip(*points, strict=True), 1)[0]), "from": rows[0]["n"], "last": rows[-1]["n"]}


def fewer_iterations(atoms: str) -> Values:
    """As many iterations on the coreset as on all rows."""
    _, rows, trials = _planted(atoms)
    found = [row["coreset_40"] for row in rows]
    return {
        "speed": max(row["times_as_fast"] for row in found),
        "error": statistics.median(row["distance_to_all"] for row in found),
        "largest": max(row["distance_to_all"] for row in found),
        "trials": trials,
        "last": rows[-1]["n"],
    }


def drawn_sizes(atoms: str) -> Values:
    """The distance from planted atoms by the size of the coreset: ends, and how well a line fits its logarithm."""
    rows = load("dictionary_paper_sizes")[f"sizes {atoms}"]
    size, log = np.array([row["size"] for row in rows]), np.log10([row["coreset"]["mean"] for row in rows])
    return {
        "first": rows[0]["coreset"]["mean"],
        "last": rows[-1]["coreset"]["mean"],
        "smallest": rows[0]["size"],
        "greatest": rows[-1]["size"],
        "n": rows[0]["n"],
        "trials": rows[0]["trials"],
        "line": float(np.corrcoef(size, log)[0, 1] ** 2),
        "power": float(np.corrcoef(np.log10(size), log)[0, 1] ** 2),
    }


def noise() -> Values:
    """The noisy photograph: the coreset and K-SVD of the paper."""
    found, crop = load("dictionary_paper_noise")["noise"], load("dictionary_paper_noise")["options"]["crop"]
    ours, name = found["coreset, as published"], found["picture"]
    part = f"the whole of {name}" if crop is None else f"a part of {name}, {crop} x {crop} pixels"
    return {
        "where": f"{part}, {found['pixels'] / 1e6:.1f} megapixels",
        "megapixels": found["pixels"] / 1e6,
        "runs": found["runs"],
        "before": ours["before"],
        "after": ours["after"]["mean"],
        "variance": ours["after"]["variance"],
        "uniform": found["uniform, as published"]["after"]["mean"],
        "seconds": ours["seconds"]["mean"],
        "variance_of_seconds": ours["seconds"]["variance"],
        "spread": math.sqrt(ours["seconds"]["variance"]) / ours["seconds"]["mean"],
    }


def _short(picture: str) -> str:
    return "cartoon" if "cartoon" in picture else Path(picture).stem.split("_")[0]


def references() -> Values:
    """The constant beside the first singular vector as D0, both among the atoms; and beside all patches."""
    rows = load("dictionary_paper_references")["references"]
    pairs = [(row["ratios"]["0"], row["ratios"]["1"]) for row in rows]
    return {
        "cells": len(rows),
        "same": sum(near(*pair) for pair in pairs),
        "widest": max(max(pair) / min(pair) for pair in pairs),
        "better": sum(constant < 1.0 for constant, _ in pairs),
        "pictures": len({row["picture"] for row in rows}),
        "size": rows[0]["size"],
        "seeds": rows[0]["seeds"],
        "dimension": max(row["d"] for row in rows),
    }


def pictures(size: int | str) -> Values:
    """Coreset, uniform sample and all patches of pictures, at one size or at "every" one."""
    rows = [row for row in load("dictionary_paper_uniform")["uniform"] if size in ("every", row["size"])]
    coresets, uniforms = ([row[way] for row in rows] for way in ("sensitivity", "uniform"))
    errors, speeds = [one["error"] for one in coresets], [one["speed"] for one in coresets]
    ratios, times = [row["coreset_to_uniform"] for row in rows], zip(coresets, uniforms, strict=True)
    grey = [(_short(row["picture"]), row["coreset_to_uniform"]) for row in rows if not row["colours"]]
    return {
        "cells": len(rows),
        "half": len(rows) / 2,
        "sizes": ", ".join(f"{size:,}" for size in sorted({row["size"] for row in rows})),
        "fewest": min(row["patches"] for row in rows),
        "most": max(row["patches"] for row in rows),
        "row_iterations": min(row["patches"] / (3.0 * row["size"]) for row in rows),
        "seeds": rows[0]["seeds"],
        "below_uniform": sum(ratio < 1.0 for ratio in ratios),
        "ten_below_uniform": sum(ratio <= 0.9 for ratio in ratios),
        "below_all": sum(error < 1.0 for error in errors),
        "above_all": sum(error >= 1.0 for error in errors),
        "ten_below_all": sum(error <= 0.9 for error in errors),
        "uniform_above_all": sum(one["error"] > 1.0 for one in uniforms),
        "listed": ", ".join(f"{name} {ratio:.2f}" for name, ratio in grey),
        "ratio": statistics.median(ratios),
        "error": statistics.median(errors),
        "slowest": min(speeds),
        "speed": statistics.median(speeds),
        "quickest": max(speeds),
        "to_uniform": statistics.median(uniform["speed"] / coreset["speed"] for coreset, uniform in times),
    }


# -- margin distributions ----------------------------------------------------------------------------


def digits(lam: float) -> Values:
    """Digits of the gap that a round of CoresetSVRG gains on Covertype, with n/4 centres, beside those of SVRG."""
    (found,) = (row for row in load("odm_svrg")["sets"] if row["set"] == "covtype" and row["lam"] == lam)
    rates = {"ours": "n / 4, steps on all", "svrg": "SVRG"}
    return {name: -math.log10(found["methods"][method]["rate"]) for name, method in rates.items()}


COMPARISONS: dict[str, Callable[..., Values]] = {
    function.__name__: function
    for function in (
        *(differences, seconds, fastest, accelerations, clustering, regressors, growth, samples),
        *(planted, slope, fewer_iterations, drawn_sizes, noise, references, pictures, digits),
    )
}
