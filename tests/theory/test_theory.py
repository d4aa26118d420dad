"""Sizes of theorems: every formula against a closed form or brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from theory_rows import weighted_rows

from tithe import build_coreset, distortion
from tithe.objectives import (
    DictionaryObjective,
    KMeansObjective,
    KMedianObjective,
    LeastSquaresObjective,
    LogisticObjective,
    MarginObjective,
)
from tithe.theory.sizes import (
    eps_for,
    known_theorems,
    theoretical_size,
)
from tithe.theory.theorems import Net

KMEANS = KMeansObjective(n_clusters=4)
LOGISTIC, MARGIN = LogisticObjective(classes=(0, 1)), MarginObjective(classes=(0, 1), lam=10.0, theta=0.2)
DICTIONARY = DictionaryObjective(n_components=6, n_nonzero_coefs=2)
CLUSTERINGS = [KMeansObjective, KMedianObjective]
TERMS: dict[str, Any] = {"n_features": 3, "n_rows": 10**6}


def _terms(goal: Any) -> dict[str, Any]:
    return {**TERMS, "total_sensitivity": 40.0} if goal in (LOGISTIC, MARGIN) else TERMS


def _all_theorems() -> list[Any]:
    return [
        pytest.param(goal, theorem, id="-".join([goal.name, *map(str, theorem.values())]))
        for goal in (KMEANS, KMedianObjective(n_clusters=4), LOGISTIC, MARGIN, DICTIONARY)
        for theorem in known_theorems(goal)
    ]


class TestFormulas:
    def test_clusterings(self) -> None:
        k, d, eps, delta = 10, 5, 0.1, 0.05
        alpha = 8 * (math.log(k) + 2)
        one = theoretical_size(KMeansObjective(n_clusters=k), eps, delta, n_features=d, queries="one")
        total = 6 * alpha + 4 * 2 * k  # the pilot has 2 k centres
        assert one.total_sensitivity == pytest.approx(total) and one.proved
        assert one.size == math.ceil(2 * total * (1 + eps / 3) * math.log(2 / delta) / eps**2)
        all_queries = theoretical_size(KMedianObjective(n_clusters=k), eps, delta, n_features=d)
        total = 2 * alpha + 2 * k
        dimension = d * k * math.log(k)
        assert all_queries.size == math.ceil(total * (dimension * math.log(total) + math.log(1 / delta)) / eps**2)
        assert all_queries.constant == 1.0 and "constant c taken as 1" in all_queries.formula
        assert not all_queries.proved

    def test_a_finite_set_of_queries_takes_the_logarithm_of_their_number(self) -> None:
        n, eps, delta = 500, 0.1, 0.05
        total = 6 * 8 * (math.log(4) + 2) + 4 * 2 * 4
        bound = theoretical_size(KMEANS, eps, delta, n_features=3, queries=n)
        assert bound.size == math.ceil(2 * total * (1 + eps / 3) * (math.log(2 / delta) + math.log(n)) / eps**2)
        assert bound.proved and "ln(2 N/delta)" in bound.formula and "N = 500 fixed queries" in bound.formula
        ours = theoretical_size(DICTIONARY, eps, delta, n_features=3, queries=n)
        paper = 10 * ours.total_sensitivity**2 * (math.log(n) + math.log(1 / delta)) / eps**2  # ln |D|, not d k
        assert ours.size == math.ceil(paper) < theoretical_size(DICTIONARY, eps, delta, n_features=64).size
        for goal in (KMEANS, LOGISTIC, MARGIN, DICTIONARY):
            one = theoretical_size(goal, eps, delta, queries="one", **_terms(goal)).size
            assert theoretical_size(goal, eps, delta, queries=1, **_terms(goal)).size == one
        assert eps_for(KMEANS, bound.size, delta, n_features=3, queries=n) == pytest.approx(eps, rel=1e-6)
        with pytest.raises(ValueError, match="queries must be"):
            theoretical_size(KMEANS, eps, delta, n_features=3, queries=0)

    def test_a_total_sensitivity_below_one_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            theoretical_size(LOGISTIC, 0.1, n_features=3, total_sensitivity=0.5)

    def test_lightweight(self) -> None:
        one = theoretical_size(KMEANS, 0.3, 0.1, n_features=3, construction="lightweight", queries="one")
        assert one.size == math.ceil(64 * 1.05 * math.log(20) / 0.09)

    @pytest.mark.parametrize(("kind", "power"), [(KMedianObjective, 1), (KMeansObjective, 2)])
    def test_rings(self, kind: Any, power: int) -> None:
        k, d, eps, delta, n = 10, 5, 0.5, 0.1, 1000
        alpha = 8 * (math.log(k) + 2)
        layers = math.ceil(math.log2(4 * n) / power)
        factor = 4.5 * alpha if power == 1 else 4 * (4.25 * alpha + math.sqrt(8.5 * alpha * (alpha + 1)))
        terms = {"n_features": d, "construction": "rings", "n_rows": n}
        one = theoretical_size(kind(n_clusters=k), eps, delta, queries="one", **terms)
        draws = math.ceil(math.log(2 / delta) * factor**2 / (2 * eps**2))
        assert one.total_sensitivity == 2 * k * (layers + 1)
        assert one.size == draws * 2 * k * (layers + 1)
        b = alpha * ((3 if power == 1 else 5) + 3 / 4) + 2
        net = _log_net(lambda w, far: (eps / 2 * (1 + w * b) + w * b) / (1 - w) + far, eps, k, d, layers, power)
        draws = math.ceil((math.log(2 * one.total_sensitivity / delta) + net) * factor**2 / (2 * (eps / 2) ** 2))
        assert theoretical_size(kind(n_clusters=k), eps, delta, **terms).size == draws * 2 * k * (layers + 1)

    @pytest.mark.parametrize(("kind", "power"), [(KMedianObjective, 1), (KMeansObjective, 2)])
    def test_nets_of_sensitivities(self, kind: Any, power: int) -> None:
        k, d, eps, delta, n = 10, 5, 0.3, 0.1, 1000
        goal, e = kind(n_clusters=k), 0.1
        f = goal.pilot_factor

        def error(w: float, far: float) -> float:
            near = e * (1 + w * (2 * f + 1)) + w * (2 * f + 1 + (1 + e) * 2 * f + 1)
            return near / (1 - w) + (1 + e) * (1 + far) - 1

        net = _log_net(error, eps, k, d, math.ceil(math.log2(n) / power), power)
        logs = math.log(2 / delta) + 2 * k * math.log(2) + net
        bound = theoretical_size(goal, eps, delta, n_features=d, queries="net", n_rows=n)
        assert bound.proved
        assert bound.size == pytest.approx(2 * goal.total_sensitivity * (1 + e / 3) * logs / e**2, rel=1e-6)

    def test_logistic_is_cablr(self) -> None:
        m, d, eps, delta = 17.0, 54, 0.1, 0.05
        bound = theoretical_size("logistic", eps, delta, n_features=d, total_sensitivity=m)
        assert bound.size == math.ceil(4 * m / eps**2 * ((d + 1) * math.log(m) + math.log(1 / delta)))
        three = theoretical_size(LogisticObjective(classes=(0, 1, 2)), eps, n_features=d, total_sensitivity=m)
        assert three.dimension == 3 * (d + 1)

    def test_margin(self) -> None:
        bound = theoretical_size(MARGIN, 0.1, 0.1, n_features=3, total_sensitivity=9.0)
        assert bound.size == math.ceil(900 * (4 * math.log(9) + math.log(10)))
        free = MarginObjective(classes=(0, 1), intercept_scaling=math.inf)
        assert theoretical_size(MARGIN, 0.1, **_terms(MARGIN), queries="one").proved
        assert not theoretical_size(free, 0.1, **_terms(MARGIN), queries="one").proved

    @pytest.mark.parametrize("total", [1.0, 1.3, 2.0, 500.0])
    @pytest.mark.parametrize("goal", [LOGISTIC, MARGIN])
    def test_all_queries_need_at_least_the_rows_of_one(self, goal: Any, total: float) -> None:
        one, every = (
            theoretical_size(goal, 0.1, n_features=1, total_sensitivity=total, queries=queries).size
            for queries in ("one", "all")
        )
        assert one <= every
        terms = {"n_features": 1, "construction": "lightweight"}
        assert theoretical_size(KMEANS, 0.1, queries="one", **terms).size <= theoretical_size(KMEANS, 0.1, **terms).size

    def test_dictionary(self) -> None:
        d, k, eps, delta = 20, 50, 0.1, 0.05
        goal = DictionaryObjective(n_components=k, beta=0.2)

        def size(**terms: Any) -> int:
            return theoretical_size(goal, eps, delta, n_features=d, **terms).size

        log, share = math.log(1 / delta), 1 - 0.2
        assert size(queries="one") == math.ceil(10 * log / (share * eps) ** 2)  # Lemma 1
        assert size() == math.ceil(10 * d * k * log / (share * eps) ** 2)  # Corollary 2
        assert size(reference_factor=3) == math.ceil(10 * d * k * 9 * log / (share * eps) ** 2)  # Theorem 1
        assert size(reference_factor="1/eps") == math.ceil(10 * d * k * log / (share * eps**2) ** 2)  # repaired
        one = 2 * 3 / share * (1 + eps / 3) * math.log(2 / delta) / eps**2
        assert size(queries="one", reference_factor=3) == math.ceil(one)

    @pytest.mark.parametrize(("goal", "theorem"), _all_theorems())
    def test_less_error_needs_more_rows_and_eps_for_is_the_inverse(self, goal: Any, theorem: dict[str, Any]) -> None:
        terms = {**_terms(goal), **theorem}
        sizes = [theoretical_size(goal, eps, **terms).size for eps in (0.4, 0.2, 0.1)]
        assert sizes[0] < sizes[1] < sizes[2]
        for size in (sizes[0], sizes[2] + 17):
            eps = eps_for(goal, size, **terms)
            assert theoretical_size(goal, eps, **terms).size <= size
            assert theoretical_size(goal, eps * (1 - 1e-6), **terms).size > size * (1 - 1e-5)
        assert eps_for(goal, 1, **terms) == math.inf

    def test_eps_for_in_closed_form(self) -> None:
        m, d, delta, size = 17.0, 54, 0.05, 10**6
        eps = eps_for("logistic", size, delta, n_features=d, total_sensitivity=m)
        assert eps == pytest.approx(math.sqrt(4 * m / size * ((d + 1) * math.log(m) + math.log(1 / delta))), rel=1e-9)

    def test_transfer_factor(self) -> None:
        bound = theoretical_size(KMEANS, 0.1, n_features=3)
        assert bound.transfer_factor(2.0) == pytest.approx(2.0 * 1.1 / 0.9)

    @pytest.mark.parametrize(
        ("objective", "options", "message"),
        [
            (KMEANS, {"eps": 0.0}, "eps"),
            (KMEANS, {"delta": 1.0}, "delta"),
            (KMEANS, {"construction": "uniform"}, "sensitivity or lightweight or rings"),
            (KMEANS, {"construction": "rings"}, "n_rows"),
            (KMEANS, {"queries": "some"}, "queries"),
            (KMEANS, {"queries": "net"}, "n_rows"),
            (KMEANS, {"queries": "net", "construction": "rings", "n_rows": 9}, "use 'one' or 'all'"),
            (LOGISTIC, {}, "measured_total_sensitivity"),
            (LOGISTIC, {"total_sensitivity": 0.99}, "total_sensitivity"),
            (DICTIONARY, {"reference_factor": 0.5}, "reference_factor"),
            (DictionaryObjective(beta=1.0), {}, "beta=1"),
            (LeastSquaresObjective(), {}, "propose_size"),
            (KMEANS, {"eps": 1e-200}, "eps"),
            (KMEANS, {"construction": "rings", "n_rows": 0}, "n_rows"),
            (KMEANS, {"total_sensitivity": 3.0}, "not for 'kmeans'"),
            (KMEANS, {"reference_factor": 3.0}, "not for 'kmeans'"),
        ],
    )
    def test_bad_arguments(self, objective: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            theoretical_size(objective, **({"eps": 0.1, "n_features": 2} | options))


def _log_net(error: Any, eps: float, k: int, d: int, last: int, power: int) -> float:
    """k ln(points): 2 k pilot centres, shells up to a radius of 2^last (3 + 1/h), balls in each."""
    for j in range(2, 60):
        h = 2.0**-j
        g = h * (1 + h) / (1 - h)
        w, far = (g, 2 * h) if power == 1 else (3 * g * (2 + g), 4 * h * (1 + h))
        if w < 1 and error(w, far) <= eps:
            break
    shells = last + 1 + math.ceil(math.log2(3 + 1 / h))
    return k * math.log(2 * k * shells * (1 + 4 / h) ** d + 1)


class TestNet:
    """The steps of the proof that a net of solutions stands for all of them."""

    @pytest.mark.parametrize(("kind", "power"), [(KMedianObjective, 1), (KMeansObjective, 2)])
    def test_a_near_solution_has_nearly_the_same_costs(self, kind: Any, power: int) -> None:
        h, largest = 0.2, 0.0
        w = Net(kind(), 2, 5).changes(h)[0]
        for seed in range(20):
            rng, block, goal = np.random.default_rng(seed), weighted_rows(seed), kind(n_clusters=2)
            pilot = goal.pilot(block, rng=rng)
            survey = goal.survey(block, pilot)
            R = (survey.totals[:, 1].sum() / (4.0 * block.total_weight)) ** (1 / power)
            centres = rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(-2, 3)
            step = rng.normal(size=(2, 2))
            gap = np.linalg.norm(centres[:, None] - pilot, axis=2).min(axis=1)
            moved = centres + h * (R + gap)[:, None] * step / np.linalg.norm(step, axis=1, keepdims=True)
            before, after = goal.cost(block, centres), goal.cost(block, moved)
            limit = w * (R**power + survey.cost + before)
            largest = max(largest, (np.abs(after - before) / limit).max())
        assert 0.1 < largest <= 1.0

    @pytest.mark.parametrize(("kind", "power"), [(KMedianObjective, 1), (KMeansObjective, 2)])
    def test_a_far_solution_has_nearly_equal_costs(self, kind: Any, power: int) -> None:
        """Rows within 1 of a pilot centre, and a solution at 1 + 1/h: h = 0.2."""
        rows = np.linspace(-1, 1, 101)
        cost, limit = (6.0 - rows) ** power, Net(kind(), 2, 5).changes(0.2)[1]
        assert limit * (1 + 1e-12) >= (cost.max() - cost.min()) / cost.min() > 0.9 * limit

    @pytest.mark.parametrize("kind", CLUSTERINGS)
    def test_rows_of_some_clusters_have_no_larger_share_than_their_sensitivity(self, kind: Any) -> None:
        """u f <= s M for the rows of any pilot clusters, M = max(c / factor, the cost of these rows)."""
        largest = 0.0
        for seed in range(20):
            rng, block, goal = np.random.default_rng(seed), weighted_rows(seed), kind(n_clusters=2)
            survey = goal.survey(block, goal.pilot(block, rng=rng))
            scores = goal.sensitivity(block, survey).at()
            for scale in (0.1, 1.0, 10.0, 1000.0):
                cost = block.weights() * goal.cost(block, scale * rng.normal(size=(2, 2)))
                cost *= np.isin(survey.labels, rng.choice(4, rng.integers(1, 4), replace=False))
                least = survey.totals[:, 1].sum() / goal.pilot_factor
                largest = max(largest, (cost / (scores * max(least, cost.sum()))).max())
        assert 0.1 < largest <= 1.0


def test_agrees_with_distortion_on_a_planted_problem() -> None:
    """A small far cluster that the query leaves out carries the cost: what sensitivities are about.

    The error of the plain draw that is exceeded with probability delta keeps to eps, and is
    within one order of magnitude of it.
    """
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=20, size=(4, 2)) * np.array([[1], [1], [1], [20]])
    sizes = (30_000, 20_000, 10_000, 600)
    X = np.concatenate([c + rng.normal(size=(n, 2)) for c, n in zip(centers, sizes, strict=True)])
    X = X[rng.permutation(len(X))]
    eps, delta = 0.3, 0.1
    size = theoretical_size(KMEANS, eps, delta, n_features=2, queries="one").size
    assert size < len(X) / 4
    results = [
        distortion(
            X,
            build_coreset(X, objective=KMEANS, coreset_size=size, calibrate=False, random_state=seed),
            KMEANS,
            queries={"three centres": [centers[:3]]},
        ).worst
        for seed in range(60)
    ]
    assert eps / 10 <= np.quantile(results, 1 - delta) <= eps
