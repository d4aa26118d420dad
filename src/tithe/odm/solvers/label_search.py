"""Labels with a small value of the margin machine: a local search, its starts, and the read-out of the relaxation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from tithe.core.data import Array
from tithe.odm.solvers.label_bound import lower_bound
from tithe.odm.solvers.labelings import Labelings
from tithe.odm.solvers.relaxation import (
    KernelMachine,
    LabelMachine,
    LabelProblem,
    MarginProblem,
    Mixture,
    distinct,
    relax,
)

M = TypeVar("M", bound=LabelMachine)

_MAX_STEPS = 100  # of a local search
_SPREADING = 0.99  # share of a row's label that comes from its neighbours
_POWERS = (1, 4)  # of the entries of a kernel matrix
_N_DIRECTIONS = 3  # eigenvectors whose signs are tried as labels
_N_RANDOM = 3  # random labelings that are tried
_MAX_CANDIDATES = 8  # labelings of the mixture that are refined
_MIN_FALL = 1e-9  # relative fall of the value below which a step is not taken
_MAX_HALVINGS = 8  # of the number of rows that change their label in one step


@dataclass(frozen=True, kw_only=True)
class LabelSolution:
    """Labels, their machine, and what is proved of them.

    Parameters
    ----------
    y : (n,)
    dual : KernelMachine
        The machine with these labels.
    value : float
        g(y).
    bound : float
        No labeling that is allowed has a smaller g.
    mixture : Mixture
        The relaxation, from the labelings that the search met.
    """

    y: Array
    dual: KernelMachine
    value: float
    bound: float
    mixture: Mixture


def search_labels(
    problem: MarginProblem,
    labelings: Labelings,
    starts: Array,
    *,
    tol: float,
    max_cuts: int,
    n_restarts: int,
    rng: np.random.Generator,
) -> LabelSolution:
    """The labels with the smallest value that the relaxation and the local search find.

    ``starts`` (k, n) are labelings to begin with. They are refined; the relaxation over cutting planes goes on from the
    results, and is read out: the leading eigenvector of its matrix, and the labelings that it is a mixture of, are
    rounded and refined again.
    """
    random = [labelings.best(rng.normal(size=len(problem.cost))) for _ in range(_N_RANDOM)]
    refined = [refine(problem, labelings, y) for y in distinct(np.vstack([*starts, *random]))]
    labels = distinct(np.array([y for y, _ in refined]))
    mixture = relax(problem, labelings, labels, tol=tol, max_cuts=max_cuts, n_restarts=n_restarts, rng=rng)
    leading = eigh(mixture.matrix(), subset_by_index=[len(labels[0]) - 1] * 2)[1][:, 0]
    likely = mixture.labels[np.argsort(-mixture.share, kind="stable")[:_MAX_CANDIDATES]]
    known = {_key(y) for y, _ in refined}
    for y in distinct(np.vstack([labelings.best(leading), *_turned(labelings, leading), likely])):
        if _key(y) not in known:
            refined.append(refine(problem, labelings, y))
    y, dual = min(refined, key=lambda pair: pair[1].value)
    value = dual.value
    bound = min(lower_bound(problem, labelings, mixture.gamma, mixture.matrix(), rng), value)
    return LabelSolution(y=y, dual=dual, value=value, bound=bound, mixture=mixture)


def _key(y: Array) -> bytes:
    """The same for a labeling and its opposite."""
    return (y * y[0]).astype(np.int8).tobytes()


def _turned(labelings: Labelings, direction: Array) -> list[Array]:
    """The rounding of the opposite direction, which differs where some labels are given."""
    return [labelings.best(-direction)] if (labelings.groups.fixed != 0.0).any() else []


def spectral_starts(labelings: Labelings, K: Array, weight: Array) -> Array:
    """Labelings from the leading eigenvectors of the matrices that `smooth_matrices` gives: (s, n)."""
    root, starts = np.sqrt(weight), []
    for matrix in smooth_matrices(K, weight):
        first = max(0, len(K) - _N_DIRECTIONS)
        vectors = eigh(matrix * np.outer(root, root), subset_by_index=[first, len(K) - 1])[1]
        starts += [labelings.best(v / root) for v in vectors.T[::-1]]
    return np.array(starts)


def smooth_matrices(K: Array, weight: Array) -> list[Array]:
    """Matrices whose leading eigenvectors are smooth functions of the rows and not constant: each (n, n).

    They come from the kernel matrix K, which is not centred, and the shares ``weight`` of the rows: K centred and,
    where no entry is negative, normalised by its row sums as in spectral clustering. Powers of the entries are kernels
    too, of narrower neighbourhoods.
    """
    degree = K @ weight
    matrices = [K - degree - degree[:, None] + float(weight @ degree)]
    for power in _POWERS if K.min() >= 0.0 else ():
        narrow = K**power
        degree = narrow @ weight
        if degree.min() > 0.0:  # the first eigenvector, which is the root of the row sums, is taken away
            root = np.sqrt(degree)
            matrices.append(narrow / np.outer(root, root) - np.outer(root, root) / float(weight @ degree))
    return matrices


def spreading_factors(K: Array, weight: Array) -> list[tuple[Array, bool]]:
    """Cholesky factors of I - a S, one for each width of the neighbourhood. Nothing if an entry of K is negative.

    S is the kernel matrix with the weights of the rows, normalised by its row sums; no eigenvalue is above 1.
    """
    factors = []
    for power in _POWERS if K.min() >= 0.0 else ():
        narrow = K**power * np.sqrt(np.outer(weight, weight))
        root = np.sqrt(np.maximum(narrow.sum(axis=1), 1e-300))
        matrix = narrow * (-_SPREADING / np.outer(root, root))
        matrix[np.diag_indices_from(matrix)] += 1.0
        factors.append(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False))
    return factors


def spread_labels(factors: list[tuple[Array, bool]], targets: Array) -> list[Array]:
    """Labels ``targets`` (n, k) of some rows, spread to their neighbours: (I - a S)^-1 targets for each factor."""
    return [cho_solve(factor, targets, check_finite=False) for factor in factors]


def refine(problem: LabelProblem[M], labelings: Labelings, y: Array) -> tuple[Array, M]:
    """Labels whose value no step of the local search makes smaller, and their machine.

    A row's label is judged by the machine that is fitted without this row: its own label would speak for itself. From
    c_i, the value with label -1 minus that with label 1, the best labeling allowed is proposed, then ones that change
    only the rows which gain most. A proposal is taken only if its value is smaller.
    """
    dual = problem.solve(y)
    for _ in range(_MAX_STEPS):
        step = _step(problem, labelings, y, dual)
        if step is None:
            break
        y, dual = step
    return y, dual


def _step(problem: LabelProblem[M], labelings: Labelings, y: Array, dual: M) -> tuple[Array, M] | None:
    value, tried = dual.value, {y.tobytes()}
    margin = dual.margins()
    alone = y * (problem.loss(-margin) - problem.loss(margin))
    without = problem.costs_without(dual)
    for c in (without, alone):
        for proposal in _proposals(labelings, y, c):
            if proposal.tobytes() not in tried:
                tried.add(proposal.tobytes())
                trial = problem.solve(proposal, dual)
                if trial.value < value * (1.0 - _MIN_FALL):
                    return proposal, trial
    return None


def _proposals(labelings: Labelings, y: Array, c: Array) -> list[Array]:
    """The best labeling for c, and ones nearer to y: ever fewer rows, those that gain most, may change."""
    proposals = [labelings.best(c)]
    changed = np.flatnonzero(proposals[0] != y)
    large = 2.0 * float(np.abs(c).sum()) + 1.0
    order = changed[np.argsort(y[changed] * c[changed], kind="stable")]
    count = len(order)
    for _ in range(_MAX_HALVINGS):
        count //= 2
        if count == 0:
            break
        kept = np.ones(len(y), bool)
        kept[order[:count]] = False
        proposals.append(labelings.best(np.where(kept, large * y, c)))
    return proposals
