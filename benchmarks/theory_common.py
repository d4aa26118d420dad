"""What the claims of benchmarks/theory.py have in common: the row of a claim, generated rows, costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tithe import Block
from tithe.objectives import DictionaryObjective, KMeansObjective, KMedianObjective

COMMAND = "python benchmarks/theory.py"
FORMULA = "same formula"
COMPUTED = "computed"


@dataclass(frozen=True, kw_only=True)
class Row:
    source: str
    claim: str
    published: str
    ours: str
    verdict: str
    command: str = COMMAND


def blobs(n: int = 20_000, k: int = 10, d: int = 2, *, tails: float = 3.0, seed: int = 0) -> np.ndarray:
    """Rows round k centres of unequal weights, with the tails of Student's distribution."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=20.0, size=(k, d))
    share = rng.dirichlet(np.full(k, 0.7))
    return centres[rng.choice(k, n, p=share)] + rng.standard_t(tails, size=(n, d))


def checked(holds: bool, reason: str = "") -> str:
    """The verdict of a measurement."""
    return f"{'confirmed' if holds else 'not confirmed'}{': ' if reason else ''}{reason}"


def costs(objective: DictionaryObjective | KMeansObjective | KMedianObjective, rows: Block, query: np.ndarray) -> float:
    return float(objective.cost(rows, query) @ rows.weights())
