"""What is computed from weighted rows: moments, surveys, scores and evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Features of rows whose totals calibration reproduces, in groups that are solved one by one.

    Parameters
    ----------
    values : (n, q) float64
        Column 0 is 1 for every row: the count.
    groups : (n,) int or None
        The group of each row. None: one group.
    n_basic : int
        Columns that matter most and come first (at least the count). The others are used
        only in groups whose basic columns the drawn rows can be trusted on.
    support, standard_errors : float
        A column is used only if its effective support is at least this number of drawn rows, and its total is within
        this number of standard errors of the estimate from the drawn rows. Good values depend on the loss and were
        measured.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective, Moments
    >>> block = Block(X=np.array([[0.0], [2.0], [10.0]]))
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> moments = objective.moments(block, pilot)
    >>> isinstance(moments, Moments), moments.groups
    (True, array([0, 0, 1], dtype=int32))
    >>> moments.values
    array([[1., 1.],
           [1., 1.],
           [1., 0.]])
    """

    values: Array
    groups: Array | None = None
    n_basic: int = 1
    support: float = 10.0
    standard_errors: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """The results of one pass over a block at a pilot.

    Parameters
    ----------
    cost : (n,) float64
        Cost of each row at the pilot, unweighted.
    labels : (n,) int32 or None
        The pilot's group that each row belongs to. None: there is only one.
    totals : (G, q) float64
        Weighted sums of the moments of the rows of each group.
    pilot : array or None
        The pilot itself, where sensitivities need it.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective, Survey
    >>> block = Block(X=np.array([[0.0], [2.0], [10.0]]))
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> survey = objective.survey(block, pilot)
    >>> isinstance(survey, Survey), survey.cost, survey.labels
    (True, array([1., 1., 0.]), array([0, 0, 1], dtype=int32))
    """

    cost: Array
    labels: Array | None
    totals: Array
    pilot: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """The scores ``weight * (slope * cost + base[label])`` of all rows, computed when needed.

    Parameters
    ----------
    cost : (n,) float64
    labels : (n,) int32 or None
        None: all rows belong to group 0.
    slope : float
    base : (groups,) float64
    weight : (n,) float64 or None
        None means ones.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.objectives import Scores
    >>> Scores(cost=np.array([1.0, 3.0]), slope=2.0, weight=np.array([1.0, 10.0])).at()
    array([ 2., 60.])
    """

    cost: Array
    labels: Array | None = None
    slope: float = 1.0
    base: Array = field(default_factory=lambda: np.zeros(1))
    weight: Array | None = None

    def at(self, rows: Array | slice = slice(None)) -> Array:
        """The scores of some rows, or of all."""
        base = self.base[0] if self.labels is None else self.base[self.labels[rows]]
        score: Array = self.slope * self.cost[rows] + base
        return score if self.weight is None else score * self.weight[rows]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """A convex objective at one solution, penalty included, from one pass over a block.

    Parameters
    ----------
    value, gradient : float, array of the shape of the parameters
    bound : float
        A proved bound on the excess of the value over its minimum.
    diagonal : array of the shape of the parameters, or None
        Diagonal of the curvature, penalty left out.
    totals : (G, q) float64
        Totals of the objective's moments at this solution.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import Evaluation, LogisticObjective
    >>> block = Block(X=np.array([[-1.0], [1.0]]), y=np.array([0, 1]))
    >>> objective, params = LogisticObjective(classes=(0, 1)), np.zeros((1, 2))
    >>> evaluation = objective.evaluate(block, params)
    >>> isinstance(evaluation, Evaluation), round(evaluation.value, 6), evaluation.gradient
    (True, 1.386294, array([[-1.,  0.]]))
    """

    value: float
    gradient: Array
    bound: float
    diagonal: Array | None
    totals: Array
