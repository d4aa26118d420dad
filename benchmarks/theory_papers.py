"""The rows of benchmarks/theory.py about the papers on logistic regression and on dictionaries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from common import AS_PUBLISHED, generated, load_labelled
from dictionary import K, T, planted, quality
from dictionary_paper import PATCH_SIDE, PICTURES, patch_source
from theory_common import COMMAND, COMPUTED, FORMULA, Row, blobs, checked, costs
from tithe import Block, build_coreset
from tithe.constructions import Cablr
from tithe.dictionary import KSVD
from tithe.objectives import DictionaryObjective, KMeansObjective, LogisticObjective
from tithe.theory.sizes import eps_for, measured_total_sensitivity, theoretical_size

LOGISTIC = LogisticObjective(classes=(0, 1))
BOUNDED = Cablr(n_clusters=4, radius=1.0)  # as in the code of the authors of CABLR
DATA_SETS = (  # table 1 of the logistic paper: name, our file, rows, columns; and the largest share that is kept
    ("ijcnn1", "ijcnn1", 141_691, 22, 0.06),
    ("Webspam", None, 350_000, 254, 0.01),
    ("Covertype", "covtype", 581_012, 54, 0.01),
    ("Higgs", None, 11_000_000, 28, 0.001),
    ("w8a", "w8a", 64_700, 300, 0.06),
)
REASONS = {
    "Webspam": "the set could not be had",
    "Higgs": "the set could not be had whole; 57,591 rows of it are in other benchmarks",
}


# -- logistic regression -----------------------------------------------------------------------------


def data_sets(folder: Path | None) -> Iterator[Row]:
    """Table 1: rows and columns; the paper does not give the share of positives."""
    for name, stem, n_rows, n_columns, _ in DATA_SETS:
        published, call = f"{n_rows:,} x {n_columns}", f"{COMMAND} --data DIR"
        ours, verdict = "-", f"not run: {REASONS.get(name, 'needs --data')}"
        if stem is not None and folder is not None:
            rows, labels = load_labelled(folder, stem)
            ours = f"{rows.shape[0]:,} x {rows.shape[1]}; {labels.mean():.1%} positive"
            verdict = checked(rows.shape == (n_rows, n_columns))
        claim = f"Table 1: rows and columns of {name}"
        yield Row(source="logistic", claim=claim, published=published, ours=ours, verdict=verdict, command=call)


def bounds(n_seeds: int) -> Iterator[Row]:
    """Sensitivities of generated rows, the size t that follows from them, and draws that fall on one row."""
    X, y = generated(20_000, 28)
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float64)
    block = Block(X=X, y=y.astype(np.int32))
    ready = BOUNDED.prepare(block, LOGISTIC, rng=np.random.default_rng(0))
    scores = len(block) * ready.scores(block, LOGISTIC)
    ours = f"{scores.min():.2f} to {scores.max():.0f}, mean {scores.mean():.1f}, N = {len(block):,}"
    claim = "sensitivities m_n lie in [0, infinity); 20,000 generated rows of 28 columns, R = 1"
    inside = float(np.mean((scores >= 1.0) & (scores <= len(block))))
    verdict = checked(bool((scores >= 0.0).all()), f"{inside:.0%} lie in the smaller range [1, N]")
    yield Row(source="logistic", claim=claim, published="[0, inf)", ours=ours, verdict=verdict)
    mean = float(scores.mean())
    size = theoretical_size(LOGISTIC, 0.1, 0.1, n_features=28, total_sensitivity=mean).size
    by_hand = math.ceil(4 * mean / 0.01 * (29 * math.log(mean) + math.log(10)))
    claim = "t(eps, delta) = ceil(c m/eps^2 ((D + 1) ln m + ln(1/delta))), eps = delta = 0.1, c = 4, that mean m"
    call = f"tithe size --objective logistic --features 28 --total-sensitivity {mean!r}"
    ours = f"{size:,}"
    yield Row(source="logistic", claim=claim, published=f"{by_hand:,}", ours=ours, verdict=FORMULA, command=call)
    eps = eps_for(LOGISTIC, size, 0.1, n_features=28, total_sensitivity=mean)
    claim = "Remark 1: eps can be computed from the size by t"
    verdict, call = checked(abs(eps - 0.1) < 1e-6), f"{call} -m {size}"
    yield Row(source="logistic", claim=claim, published="0.1", ours=f"{eps:.6f}", verdict=verdict, command=call)
    made = {"objective": LOGISTIC, "construction": BOUNDED, "coreset_size": 1000, "calibrate": False}
    drawn = build_coreset(X, y, **made, random_state=0)
    claim = "M = 1,000 draws give |C| = M rows"
    verdict = checked(len(drawn) == 1000, "|C| <= M, since a row that is drawn twice is kept once")
    yield Row(source="logistic", claim=claim, published="1,000", ours=f"{len(drawn)}", verdict=verdict)


def unbiased(n_seeds: int) -> Iterator[Row]:
    """The claim of section 3.1: over all subsets of a few rows, and over draws of tithe."""
    goal, n_draws = KMeansObjective(n_clusters=3), 20 * n_seeds
    query = np.random.default_rng(1).normal(scale=20.0, size=(3, 2))
    few = goal.cost(Block(X=blobs(12, 3)), query)
    subsets = [few[list(chosen)].mean() for chosen in combinations(range(12), 4)]
    exact = abs(np.mean(subsets) / few.mean() - 1.0)
    block = Block(X=blobs(2000, 3))
    made = {"objective": goal, "construction": "uniform", "coreset_size": 50, "calibrate": False}
    draws = [
        costs(goal, build_coreset(block.X, **made, random_state=seed), query) / costs(goal, block, query)
        for seed in range(n_draws)
    ]
    error = np.std(draws, ddof=1) / math.sqrt(n_draws)
    claim = "a uniform sample estimates the cost of a query without bias: relative difference of the expectation"
    ours = f"{exact:.0e} over all {len(subsets)} subsets of 4 of 12 rows"
    ours += f"; {n_draws} draws of 50 of 2,000 rows: {np.mean(draws) - 1.0:+.4f}, standard error {error:.4f}"
    verdict = checked(bool(exact < 1e-12 and abs(np.mean(draws) - 1.0) <= 3.0 * error))
    yield Row(source="logistic", claim=claim, published="0", ours=ours, verdict=verdict)


def guarantees(folder: Path | None) -> Iterator[Row]:
    """The error that t gives for the largest coreset of each set, at the measured mean sensitivity or the least one."""
    for name, stem, n_rows, n_columns, share in DATA_SETS:
        kept, mean, about = round(share * (n_rows // 2)), 1.0, "the least possible m = 1"
        if stem is not None and folder is not None:
            rows, labels = load_labelled(folder, stem, AS_PUBLISHED.get(stem))
            mean = measured_total_sensitivity(rows, labels, objective=LOGISTIC, construction=BOUNDED)
            about = f"measured m = {mean:.4g}"
        terms = {"n_features": n_columns, "total_sensitivity": max(1.0, mean)}
        eps, needed = eps_for(LOGISTIC, kept, 0.1, **terms), theoretical_size(LOGISTIC, 0.1, 0.1, **terms).size
        claim = f"{name}, largest coreset, {100 * share:g} % = {kept:,} rows: eps by t at delta = 0.1, {about}"
        ours = f"{'no eps < 1' if math.isinf(eps) else f'{eps:.3f}'}; eps = 0.1 needs {needed:,}"
        call = f"tithe size --objective logistic --features {n_columns} --total-sensitivity {mean!r} -m {kept}"
        yield Row(source="logistic", claim=claim, published="not given", ours=ours, verdict=COMPUTED, command=call)


# -- dictionaries ------------------------------------------------------------------------------------


def dictionary_sizes(n_seeds: int) -> Iterator[Row]:
    goal, eps, delta = DictionaryObjective(n_components=50, beta=1e-12), 0.1, 0.1
    mixed = DictionaryObjective(n_components=50)

    def row(claim: str, by_hand: float, verdict: str, **terms: Any) -> Row:
        ours = [theoretical_size(one, eps, delta, n_features=20, **terms).size for one in (goal, mixed)]
        text = f"{ours[0]:,}; {ours[1]:,} with beta = 0.1"
        return Row(source="dictionary", claim=claim, published=f"{math.ceil(by_hand):,}", ours=text, verdict=verdict)

    base = 10.0 * math.log(1.0 / delta) / eps**2
    verdict = f"{FORMULA}; Hoeffding's inequality needs {math.ceil(math.log(2 / delta) / 2 / eps**2):,}"
    claim = "Lemma 1: 10 ln(1/delta)/eps^2 columns for one dictionary, eps = delta = 0.1"
    yield row(claim, base, verdict, queries="one")
    claim = "Corollary 1: 10 alpha^2 ln(1/delta)/eps^2 columns for a relative error of one dictionary, alpha = 2"
    verdict = "other design: Bernstein's inequality takes the place of Hoeffding's, and needs fewer"
    yield row(claim, 4.0 * base, verdict, queries="one", reference_factor=2)
    claim = "Theorem 1: 10 d k alpha^2 ln(1/delta)/eps^2, d = 20, k = 50, alpha = 2"
    yield row(claim, 4000.0 * base, FORMULA, reference_factor=2)
    yield row("Corollary 2: error eps cost(D0) for all D that contain D0, d = 20, k = 50", 1000.0 * base, FORMULA)
    claim = "Corollary 2: relative error eps for those with cost(D) >= eps cost(D0)"
    verdict = "not confirmed: eps cost(D0) / cost(D) is 1 there; the accuracy eps^2 is needed"
    yield row(claim, 1000.0 * base, verdict, reference_factor="1/eps")
    for d, k, c in ((20, 50, 5000), (64, 256, 10_000)):
        terms = {"n_features": d, "queries": "all"}
        found = eps_for(DictionaryObjective(n_components=k, beta=1e-12), c, delta, **terms)
        formula = math.sqrt(10 * d * k * math.log(1 / delta) / c)
        claim = f"eps of the coreset of the experiments by Corollary 2: c = {c:,}, d = {d}, k = {k}, delta = 0.1"
        ours = f"{'no eps < 1' if math.isinf(found) else f'{found:.3f}'} (formula: {formula:.2f})"
        yield Row(source="dictionary", claim=claim, published="not given", ours=ours, verdict=COMPUTED)


def with_reference(goal: DictionaryObjective, block: Block, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The constant D0, and a dictionary of it and two random atoms."""
    constant, atoms = goal.pilot(block, rng=rng), rng.normal(size=(2, block.n_features))
    return constant, np.vstack([constant, atoms / np.linalg.norm(atoms, axis=1, keepdims=True)])


def dictionary_draws(n_seeds: int) -> Iterator[Row]:
    """Corollary 1 for draws of its size, and the total sensitivity, on rows whose lengths differ by two orders."""
    goal, eps, delta = DictionaryObjective(n_components=3, n_nonzero_coefs=1, beta=1e-12), 0.3, 0.1
    largest, missed, sizes = 0.0, 0, []
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        block = Block(X=rng.normal(size=(200, 4)) * 10.0 ** rng.uniform(-1, 1, (200, 1)))
        shares, factor = np.zeros(200), 1.0
        for _ in range(200):
            constant, atoms = with_reference(goal, block, rng)
            error = goal.cost(block, atoms)
            factor = max(factor, costs(goal, block, constant) / error.sum())
            shares = np.maximum(shares, error / error.sum())
        largest = max(largest, float(shares.sum() / factor))
        many = Block(X=rng.normal(size=(20_000, 4)) * 10.0 ** rng.uniform(-1, 1, (20_000, 1)))
        constant, atoms = with_reference(goal, many, rng)
        alpha = math.ceil(costs(goal, many, constant) / costs(goal, many, atoms))
        sizes.append(math.ceil(10.0 * alpha**2 * math.log(1.0 / delta) / eps**2))
        drawn = build_coreset(many.X, objective=goal, coreset_size=sizes[-1], calibrate=False, random_state=seed)
        missed += abs(costs(goal, drawn, atoms) / costs(goal, many, atoms) - 1.0) > eps
    claim = f"Corollary 1: share of {n_seeds} draws of its size with a relative error above eps = 0.3, delta = 0.1"
    ours = f"{missed / n_seeds:.2f}, with at most {max(sizes):,} of 20,000 columns"
    verdict = checked(missed <= delta * n_seeds)
    yield Row(source="dictionary", claim=claim, published="<= 0.10", ours=ours, verdict=verdict)
    claim = f"total sensitivity T <= alpha: largest T / alpha of {n_seeds} problems, 200 dictionaries each"
    ours, verdict = f"{largest:.3f}", checked(largest <= 1.0)
    yield Row(source="dictionary", claim=claim, published="<= 1", ours=ours, verdict=verdict)


def references(n_seeds: int, folder: Path | None) -> Iterator[Row]:
    """Two remarks of the experiments: the ones serve as well as the mean, and are nearly the first singular vector."""
    trials, n, distances = max(2, n_seeds // 2), 18_750, {"constant": [], "mean_line": []}
    for trial in range(trials):
        X, atoms = planted(n, 0.0, 1000 + trial)
        for reference, found in distances.items():
            model = KSVD(K, n_nonzero_coefs=T, max_iter=120, variant="plain", coreset_size=5000, reference=reference)
            found.append(quality(X[:1000], atoms, model.set_params(random_state=trial).fit(X).components_)[1])
    ones, mean = (float(np.mean(values)) for values in distances.values())
    claim = f"the ones as D0 give nearly the same result as the mean: distance from planted atoms in (0, 1), n = {n:,}"
    verdict = checked(abs(ones - mean) <= 0.2 * max(ones, mean), f"{trials} trials of each")
    ours = f"{ones:.5f}; mean {mean:.5f}"
    yield Row(source="dictionary", claim=claim, published="nearly the same", ours=ours, verdict=verdict)
    if folder is None:
        return
    deviations = []
    for name in PICTURES:
        source = patch_source(folder / "images" / name, colours=False, max_patches=250_000)
        X = source.sample(source.n_rows, rng=np.random.default_rng(0)).X.astype(np.float64)
        first = np.linalg.eigh(X.T @ X)[1][:, -1]
        deviations.append(float(first.std() / abs(first.mean())))
    claim = f"the first singular vector of {PATCH_SIDE} x {PATCH_SIDE} patches deviates from a constant by a thousandth"
    claim += f" of its mean: standard deviation / mean, median of {len(deviations)} pictures, grey"
    middle = float(np.median(deviations))
    ours = f"{middle:.4f}; {min(deviations):.4f} to {max(deviations):.4f}"
    verdict = checked(round(math.log10(middle)) <= -3, "of this order of magnitude")
    call = f"{COMMAND} --data DIR"
    yield Row(source="dictionary", claim=claim, published="0.001", ours=ours, verdict=verdict, command=call)
