"""What is left of a chain when its rows are not saved."""

from __future__ import annotations

from dataclasses import dataclass

from tithe.core.data import Array
from tithe.core.state_checks import Each, Floats, Instance, Integer, Number, Parts, Storable, check_fields, expect
from tithe.learners.online.chain import Chain
from tithe.learners.online.history import History


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedChain(Storable):
    """The results of a `Chain`: enough to predict, but not to take more rows.

    Parameters
    ----------
    centers : (k, d) array
    history : History
    restarts : list of (int, float)
    n_rows : int
    radius : float
    """

    centers: Array
    history: History
    restarts: list[tuple[int, float]]
    n_rows: int
    radius: float

    @classmethod
    def of(cls, chain: Chain) -> FinishedChain:
        return cls(
            centers=chain.current,
            history=chain.history,
            restarts=chain.restarts,
            n_rows=chain.n_rows,
            radius=float(chain.radius),
        )

    @property
    def current(self) -> Array:
        """The centres: (k, d)."""
        return self.centers.copy()

    def _check_state(self) -> None:
        sizes = check_fields(
            self,
            {
                "centers": Floats("k", "d"),
                "history": Instance(History),
                "restarts": Each(Parts(Integer(), Number())),
                "n_rows": Integer(least=1),
                "radius": Number(least=0.0),
            },
        )
        expect(sizes["k"] > 0, "there are no centres")
