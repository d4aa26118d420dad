"""How many rows to keep by the theorems, and the error that they give for a number of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tithe.clustering.objective import ClusteringObjective
from tithe.core.contracts import Objective, SensitivityObjective, Source
from tithe.core.data import Array, Block
from tithe.core.params import Instance, RealNumber, WholeNumber, check_value
from tithe.core.passes import DataPass
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.linear.cablr import Clustered
from tithe.linear.logistic_objective import LogisticObjective
from tithe.reduce.draws import score_values
from tithe.reduce.plan import check_contracts
from tithe.rows.arrays import as_block
from tithe.theory.theorems import (
    DRAWN_BY,
    SizeBound,
    SizeQuestion,
    TheoremObjective,
    about_clusters,
    by_sensitivities,
    needed_total,
)

SAMPLE_ROWS = 200_000  # rows of a source that a total sensitivity is measured on
_LOGISTIC_CONSTANT = 4.0  # the constant of the theorem in the code of its authors; the theorem leaves it open
_MIN_EPS = 1e-9  # the smallest error that sizes are computed for


def theoretical_size(
    objective: str | Objective,
    eps: float,
    delta: float = 0.1,
    *,
    n_features: int,
    construction: str = "auto",
    queries: str | int = "all",
    n_rows: int | None = None,
    total_sensitivity: float | None = None,
    reference_factor: float | str | None = None,
) -> SizeBound:
    """Rows for an error of at most ``eps`` with probability 1 - ``delta``, by the formulas of theorems.

    The sizes are those of one draw from all rows with weights as they are drawn (``calibrate=False``). Expect far
    more rows than are needed: see `propose_size`, which measures.

    Parameters
    ----------
    objective : str or objective
        A clustering, ``"logistic"``, ``"margin"`` or ``"dictionary"``.
    eps, delta : float
        Below 1; ``eps`` is at least 1e-9. The error is relative to the cost of a solution, unless said otherwise below.
    n_features : int
    construction : str
        For clusterings ``"sensitivity"``, ``"lightweight"`` or ``"rings"``, for logistic regression ``"cablr"`` or
        ``"acvs"``, else ``"sensitivity"``. ``"auto"``: the first of these.
    queries : {"one", "all", "net"} or int
        ``"one"``: one solution fixed before the draw. A number N: so many of them, such as candidates of a search, all
        at once. ``"all"``: every solution at once. ``"net"``: the same for
        clusterings and ``"sensitivity"``, by a proof that leaves no constant open and asks for more rows.
    n_rows : int, optional
        Rings and nets need it: the number of layers grows with its logarithm. For weighted rows, their total weight
        divided by the smallest positive weight (`rows_of_equal_weight`).
    total_sensitivity : float, optional
        Logistic regression and margins need it: the total, at least 1, of the bounds s_i that rows are drawn by, which
        `measured_total_sensitivity` returns. A coreset by ``"cablr"`` has it as ``provenance["mean_sensitivity"]``.
    reference_factor : float, "1/eps" or None
        Dictionaries: a number A makes the error relative, for dictionaries D with cost(D) >= cost(D0) / A. ``"1/eps"``:
        those with cost(D) >= eps cost(D0). None: the error is at most eps cost(D0), for all.

    Returns
    -------
    SizeBound

    Notes
    -----
    Let s_i >= sup_q u_i f_q(x_i) / cost(q), and S = sum s_i. A draw with p_i = s_i / S has terms u f / p between 0 and
    S cost(q), with a mean square of at most S cost(q)^2. So for one query Bernstein's inequality gives

        m = 2 S (1 + eps / 3) ln(2 / delta) / eps^2.

    For N fixed queries delta / N is left for each, so that ln(2 N / delta) takes the place of ln(2 / delta): the
    logarithm of their number stands where the dimension does for all queries, and no constant is open.

    For all queries m = c S (D ln S + ln(1 / delta)) / eps^2, D the dimension of the functions, c a universal constant,
    and at least as many as for one.

    - Clusterings: s_i as in `ClusteringObjective`. Its pilot has p = 2k centres, alpha = 8 (ln k + 2), and
      S = 2 alpha + p for k-median, 6 alpha + 4 p for k-means; D = d k ln k and c = 1. This assumes that the pilot
      costs at most alpha times the smallest cost with k centres. D^z seeding on all rows does in expectation, and a
      pilot is seeded on a sample of them. ``"net"``: with N functions and e = eps / 3,
      2 S (1 + e / 3) (ln(2 / delta) + ln N) / e^2 rows; N counts a net of solutions (`tithe.theory.theorems.Net`).
    - ``"lightweight"``: with A = (cost(q) + cost(mean)) / 2 the error is at most eps A. S = 16 (k-median: 4) bounds
      u f / (p A), and cost(q) <= 2 A: 4 S (1 + eps / 6) ln(2 / delta) / eps^2 rows for one query, and
      c (D + ln(1 / delta)) / eps^2 with c = 1 for all.
    - ``"rings"``: 2k (layers + 1) rings of x draws, x as in `tithe.clustering.rings.draws_per_ring`. For all
      queries x counts a net as well, and all constants are known. The assumption on the pilot is the same.
    - Logistic regression, |theta| <= R: S is the mean sensitivity of CABLR, D = d + 1 (times the number of
      classes if there are more than two), and c = 4 as in the code of its authors. The draws from
      each class, whose numbers are rounded, count as draws from all rows.
    - Margins: costs include the penalty, and losses are divided by the weight of all rows. D is the number of
      parameters and c = 1.
    - Dictionaries of error err(y, D) <= err(y, D0) in each row, D0 the reference. ``include_reference`` ensures this
      for all references but ``"projective"``, and so does a single vector among the atoms. S = A / (1 - beta), with
      A = 1 where the error is additive. One query: 10 S^2 ln(1 / delta) / eps^2 (Feldman, Feigin and Sochen, Lemma 1),
      or Bernstein's inequality for a relative error. All: 10 d k S^2 ln(1 / delta) / eps^2 (Theorem 1, Corollary 2).
      That corollary claims a relative error eps for cost(D) >= eps cost(D0). This takes A = 1 / eps, and so eps^-4.

    Examples
    --------
    >>> from tithe.objectives import KMeansObjective
    >>> from tithe.theory import theoretical_size
    >>> theoretical_size(KMeansObjective(n_clusters=10), 0.1, 0.1, n_features=5, queries="one").size
    177393

    A thousand solutions that are known before the draw:

    >>> theoretical_size(KMeansObjective(n_clusters=10), 0.1, 0.1, n_features=5, queries=1000).size
    586435
    """
    check_value("eps", eps, RealNumber(least=_MIN_EPS, below=1.0))
    options = (delta, n_features, construction, queries, n_rows, total_sensitivity, reference_factor)
    return _answer(objective, SizeQuestion(eps, *options))


def eps_for(
    objective: str | Objective,
    size: int,
    delta: float = 0.1,
    *,
    n_features: int,
    construction: str = "auto",
    queries: str | int = "all",
    n_rows: int | None = None,
    total_sensitivity: float | None = None,
    reference_factor: float | str | None = None,
) -> float:
    """The error that a theorem gives for ``size`` rows: the smallest eps whose `theoretical_size` is at most ``size``.

    The other arguments are those of `theoretical_size`. Infinity where the theorem gives no error below 1; never less
    than 1e-9.

    >>> eps_for("kmeans", 1_000_000, n_features=5, queries="one") < 0.05
    True
    """
    check_value("size", size, WholeNumber(least=1))
    options = (delta, n_features, construction, queries, n_rows, total_sensitivity, reference_factor)
    goal: Objective = make("objective", objective)
    low, high = math.log(_MIN_EPS), math.log1p(-1e-12)
    if _answer(goal, SizeQuestion(math.exp(high), *options)).size > size:
        return math.inf
    for _ in range(60):  # halvings of an interval of width 21: down to the last digits
        middle = (low + high) / 2.0
        if _answer(goal, SizeQuestion(math.exp(middle), *options)).size > size:
            low = middle
        else:
            high = middle
    return math.exp(high)


def known_theorems(objective: Objective) -> list[dict[str, Any]]:
    """The arguments of `theoretical_size` for all theorems about an objective; an empty list if there are none."""
    pairs: list[tuple[str, str]]
    if isinstance(objective, ClusteringObjective):
        pairs = [(name, queries) for name in ("sensitivity", "lightweight", "rings") for queries in ("one", "all")]
        pairs.insert(2, ("sensitivity", "net"))
    elif isinstance(objective, LogisticObjective):
        pairs = [("cablr", "one"), ("cablr", "all")]
    elif isinstance(objective, TheoremObjective):
        pairs = [("sensitivity", "one"), ("sensitivity", "all")]
    else:
        pairs = []
    theorems: list[dict[str, Any]] = [{"construction": name, "queries": queries} for name, queries in pairs]
    if isinstance(objective, TheoremObjective) and objective.takes_reference_factor:
        theorems += [{**theorem, "reference_factor": "1/eps"} for theorem in theorems]
    return theorems


def needs_total_sensitivity(objective: Objective) -> bool:
    """Whether the theorems about an objective need a total sensitivity that was measured on rows."""
    if isinstance(objective, TheoremObjective):
        return objective.needs_total_sensitivity
    return isinstance(objective, LogisticObjective)


def measured_total_sensitivity(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: str | Objective,
    construction: Any = "auto",
    random_state: Any = 0,
) -> float:
    """The total of the bounds on sensitivities that rows are drawn by: S of `theoretical_size`.

    Those of logistic regression are the bounds of ``"cablr"`` unless another ``construction`` is given, ``"acvs"`` or
    an instance such as ``Cablr(radius=2.0)``. ``X`` may be a source: then a sample of 200,000 of its rows is measured,
    and the result is an estimate, which is often too small. Sizes are proved for the total of all rows, at the pilot or
    clusters of the draw.

    A row has no larger share of a cost than 1, whatever its bound s_i. So draws with p_i = s_i / sum s have terms of at
    most S cost(q) with S = max min(1, s_i) / p_i, which is the sum of s where no bound is above 1.

    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> total = measured_total_sensitivity(X, objective="kmeans")
    >>> total <= theoretical_size("kmeans", 0.1, n_features=3).total_sensitivity
    True
    """
    goal: Objective = make("objective", objective)
    seed = as_seed(random_state)
    if isinstance(X, Source):
        block = X.sample(SAMPLE_ROWS, rng=rng_for(seed, "sample"))
    else:
        block = as_block(X, y, sample_weight)
    goal = goal.for_rows(block)
    if isinstance(goal, LogisticObjective):
        name = "cablr" if isinstance(construction, str) and construction == "auto" else construction
        made = make("construction", name)
        check_value("construction", made, Instance(Clustered, "'cablr', 'acvs' or an instance of these"))
        bounds: Array = made.prepare(block, goal, rng=rng_for(seed, "prepare")).scores(block, goal)
    else:
        check_contracts(goal, (SensitivityObjective,), needed_by="measured_total_sensitivity")
        assert isinstance(goal, SensitivityObjective)
        pilot = goal.pilot(block, rng=rng_for(seed, "pilot"))
        bounds = score_values(goal.sensitivity(block, goal.survey(block, pilot)))
    drawn = bounds[bounds > 0.0]
    return float(drawn.sum() * np.max(np.minimum(1.0, drawn) / drawn, initial=0.0))


def rows_of_equal_weight(rows: Block | Source) -> int:
    """The total weight divided by the smallest positive weight, rounded up: ``n_rows`` of `theoretical_size`.

    >>> rows_of_equal_weight(Block(X=np.zeros((3, 1)), sample_weight=np.array([0.5, 2.0, 0.0])))
    5
    """
    total, smallest = 0.0, math.inf
    for leaf_total, leaf_smallest in DataPass(rows).each(_weights):
        total, smallest = total + leaf_total, min(smallest, leaf_smallest)
    if not total:
        raise ValueError("All weights are 0.")
    return math.ceil(total / smallest * (1.0 - 1e-12))  # a quotient of equal weights is a whole number


def _weights(leaf: Block) -> tuple[float, float]:
    weights = leaf.weights()
    return float(weights.sum()), float(np.min(weights[weights > 0.0], initial=math.inf))


def _answer(objective: str | Objective, question: SizeQuestion) -> SizeBound:
    """What the theorem about an objective answers."""
    if not isinstance(question.queries, str):
        n = question.queries
        bound = _answer(objective, replace(question, queries="one", delta=question.delta / n))
        formula = bound.formula.replace("2/delta", "2 N/delta").replace("1/delta", "N/delta")
        return replace(bound, formula=formula.replace("one fixed query", f"N = {n:,} fixed queries"))
    goal: Objective = make("objective", objective)
    construction, queries = question.construction, question.queries
    if question.total_sensitivity is not None and not needs_total_sensitivity(goal):
        raise ValueError(f"total_sensitivity is for logistic regression and margins, not for {goal.name!r}.")
    takes_factor = isinstance(goal, TheoremObjective) and goal.takes_reference_factor
    if question.reference_factor is not None and not takes_factor:
        raise ValueError(f"reference_factor is for dictionaries, not for {goal.name!r}.")
    theorems = known_theorems(goal)
    known = [theorem["construction"] for theorem in theorems]
    if not known:
        raise ValueError(f"No theorem about sizes is known for {goal.name!r}: measure one with propose_size.")
    construction = known[0] if construction == "auto" else construction
    construction = "cablr" if construction == "acvs" and known[0] == "cablr" else construction
    if construction not in known:
        raise ValueError(
            f"No theorem is known for construction {construction!r} and {goal.name!r}: use "
            f"{' or '.join(dict.fromkeys(known))}."
        )
    if not any(theorem["construction"] == construction and theorem["queries"] == queries for theorem in theorems):
        raise ValueError(f"queries={queries!r} is for clusterings and construction 'sensitivity': use 'one' or 'all'.")
    question = replace(question, construction=construction)
    if isinstance(goal, ClusteringObjective):
        return about_clusters(goal, question)
    if isinstance(goal, TheoremObjective):
        return goal.size_theorem(question)
    n_classes = 2 if goal.lacks_classes else goal.n_classes
    dimension = float((n_classes if n_classes > 2 else 1) * (question.n_features + 1))
    total = needed_total(goal.name, question.total_sensitivity)
    assumption = f"{DRAWN_BY} and the norm of parameters at most the radius of the construction"
    return by_sensitivities(question, total, dimension, constant=_LOGISTIC_CONSTANT, assumption=assumption)
