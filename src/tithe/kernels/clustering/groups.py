"""Rows in many groups at once: which ring a row lies in, and draws within every group in one sweep."""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts
from tithe.kernels.parts import part_rows


@njit(cache=True, nogil=True)
def _ring_codes(cost, labels, factor, power, last_layer, codes, first, last, rows):
    for i in range(first * rows, min(cost.shape[0], last * rows)):
        scaled = cost[i] * factor
        layer = 0
        if scaled > 1.0:
            layer = min(last_layer, max(0, int(np.ceil(np.log2(scaled) / power - 1e-12))))
        codes[i] = (labels[i] if labels.size > 0 else 0) * (last_layer + 1) + layer


def ring_codes(cost: Array, labels: Array | None, *, factor: float, power: int, last_layer: int) -> Array:
    """``label * (last_layer + 1) + layer`` of every row, with layer = ceil(log2(factor * cost) / power): (n,) int32."""
    n = len(cost)
    codes = np.empty(n, np.int32)
    clusters = np.empty(0, np.int32) if labels is None else labels
    rows = part_rows(n, 8)
    over_parts(
        lambda a, b: _ring_codes(cost, clusters, factor, power, last_layer, codes, a, b, rows),
        -(-n // rows),
        serial=n < 50_000,
    )
    return codes


@njit(cache=True, nogil=True)
def _masses(codes, weight, counts, masses):
    for i in range(codes.shape[0]):
        u = weight[i] if weight.size > 0 else 1.0
        if u > 0.0:
            counts[codes[i]] += 1
            masses[codes[i]] += u


@njit(cache=True, nogil=True)
def _pick(codes, weight, keep_all, targets, draws, kept_rows):
    reached = np.zeros(keep_all.shape[0])
    n_drawn = np.zeros(keep_all.shape[0], np.int64)
    n_kept = 0
    for i in range(codes.shape[0]):
        u = weight[i] if weight.size > 0 else 1.0
        if u <= 0.0:
            continue
        g = codes[i]
        if keep_all[g]:
            kept_rows[n_kept] = i
            n_kept += 1
            continue
        reached[g] += u
        while n_drawn[g] < targets.shape[1] and targets[g, n_drawn[g]] < reached[g]:
            draws[g, n_drawn[g]] = i
            n_drawn[g] += 1
    return n_kept


def group_masses(codes: Array, n_groups: int, weight: Array | None) -> tuple[Array, Array]:
    """Rows of positive weight and weight of each group."""
    counts, masses = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    _masses(codes, np.empty(0) if weight is None else weight, counts, masses)
    return counts, masses


def draw_in_groups(
    codes: Array, counts: Array, masses: Array, per_group: int, weight: Array | None, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Groups of at most ``per_group`` rows whole; ``per_group`` draws by weight from each of the others.

    Returns distinct positions, ascending, and weights whose sum in every group is the group's mass.
    """
    keep_all = counts <= per_group
    slices = masses[:, None] / per_group
    targets = (np.arange(per_group) + rng.random((len(counts), per_group))) * slices
    draws = np.full((len(counts), per_group), -1, np.int64)
    kept_rows = np.empty(int(counts[keep_all].sum()), np.int64)
    u = np.empty(0) if weight is None else weight
    _pick(codes, u, keep_all, targets, draws, kept_rows)
    drawn, times = np.unique(draws[~keep_all], return_counts=True)
    positions = np.concatenate([kept_rows, drawn])
    kept_weights = np.ones(len(kept_rows)) if weight is None else weight[kept_rows]
    weights = np.concatenate([kept_weights, times * masses[codes[drawn]] / per_group])
    order = np.argsort(positions, kind="stable")
    return positions[order], weights[order]
