"""What an online clustering remembers of the rows it has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from tithe.clustering.objective import KMeansObjective, check_centers
from tithe.core.contracts import SensitivityObjective
from tithe.core.data import Array, Block, Coreset, Moments, Survey
from tithe.core.state_checks import Floats, Instance, Integer, Integers, Optional, StoredState, expect
from tithe.online.kernels import K, N, look_at_all, measure_gaps
from tithe.online.scale import Pieces
from tithe.reduce.draws import MeanPilotObjective
from tithe.reduce.stream import CoresetStream, StreamState

N_ATTRIBUTES = 2  # the last columns of a row: the loss when it was predicted, and the curb
_MAX_WEIGHT = 1e20  # squares of sums of weights must not overflow
_MAX_VALUE = 1e71  # of a row
_MIN_ROOM = 256  # rows that memory is allocated for at first


@dataclass(frozen=True, kw_only=True)
class QuasiPosteriorObjective(SensitivityObjective, MeanPilotObjective):
    """g_c(x, p, q) = l + q/2 (l - p)^2 with l = min_j |x - c_j|^2: rows are (x, p, q), d + 2 columns.

    p is the loss at which the row was predicted and q >= 0 the curb (Li, Guedj and Loustau 2018, section 2). With the
    pilot, clusters b and distances d_i of k-means, the score of row i is that of `KMeansObjective` and, for the second
    term,

        u_i q_i (d_i^4 + p_i^2) / sum_s u_s q_s (d_s^4 + p_s^2) + u_i q_i / sum_{s in b} u_s q_s.
    """

    n_clusters: int = 8
    name: ClassVar[str] = "quasi_posterior"

    @property
    def _kmeans(self) -> KMeansObjective:
        return KMeansObjective(n_clusters=self.n_clusters)

    def pilot(self, block: Block, *, rng: np.random.Generator) -> Array:
        return Pieces.of(_points(block), self.n_clusters, int(rng.integers(2**62)), 0).places

    def mean_pilot(self, block: Block) -> Array:
        return self._kmeans.mean_pilot(_points(block))

    def survey(self, block: Block, pilot: Array) -> Survey:
        return self._kmeans.survey(_points(block), pilot)

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        check_centers(pilot, totals, block.n_features - N_ATTRIBUTES)

    def check_relations(self) -> None:
        self._kmeans  # noqa: B018 - checks the number of clusters

    def sensitivity(self, block: Block, survey: Survey) -> Array:
        score: Array = self._kmeans.sensitivity(block, survey).at()
        predicted, curb = block.X[:, -2], block.X[:, -1] * block.weights()
        quartic = curb * (survey.cost**2 + predicted**2)
        total = quartic.sum()
        mass = np.bincount(survey.labels, weights=curb) if survey.labels is not None else curb.sum(keepdims=True)
        cluster_mass = mass[survey.labels] if survey.labels is not None else mass
        score = score + np.divide(curb, cluster_mass, out=np.zeros_like(curb), where=cluster_mass > 0.0)
        if total > 0.0:
            score += quartic / total
        return score

    def moments(self, block: Block, pilot: Array) -> Moments:
        return self._kmeans.moments(_points(block), pilot)

    def cost(self, block: Block, params: Array) -> Array:
        """g of every row: (n,)."""
        loss = self._kmeans.cost(_points(block), params)
        return np.asarray(loss + 0.5 * block.X[:, -1] * (loss - block.X[:, -2]) ** 2)

    def solve(self, block: Block, *, rng: np.random.Generator, init: Any = None) -> Array:
        """Centres of least k-means cost, which leaves out the second term."""
        return self._kmeans.solve(_points(block), rng=rng, init=init)


def _points(block: Block) -> Block:
    return replace(block, X=np.ascontiguousarray(block.X[:, :-N_ATTRIBUTES]), mean=None)


class Past(StoredState):
    """Weighted rows with the loss of their prediction, their curb, and their nearest and second nearest centre.

    With more than ``summary_size`` rows they become a leaf of a `CoresetStream`, and a coreset of it takes their
    place.
    """

    summary_size: Annotated[int | None, Optional(Integer(least=2))]
    stream: Annotated[CoresetStream | None, Optional(Instance(CoresetStream))]
    old_ids: Annotated[Array, Integers("old", least=0)]  # of the rows of the summary
    old_weights: Annotated[Array, Floats("old", least=0.0, most=_MAX_WEIGHT)]  # when the summary was made
    n_handed: Annotated[int, Integer()]  # rows that were passed to the summary
    rows: Annotated[Array, Floats("d", "room", least=-_MAX_VALUE, most=_MAX_VALUE)]
    # weight, predicted, curb, nearest, second nearest
    columns: Annotated[Array, Floats(5, "room", any_value=True)]
    labels: Annotated[Array, Integers(2, "room", dtypes=("int32",))]

    def __init__(
        self, n_features: int, max_clusters: int, *, summary_size: int | None, half_life: float | None, seed: int
    ) -> None:
        self.summary_size = summary_size
        self.stream = None
        if summary_size is not None:
            self.stream = CoresetStream(
                QuasiPosteriorObjective(n_clusters=max_clusters),
                coreset_size=summary_size,
                leaf_size=summary_size,
                half_life=half_life,
                random_state=seed,
            )
        self.old_ids = np.empty(0, np.int64)
        self.old_weights = np.empty(0)
        self.n_handed = 0
        self.rows = np.empty((n_features, 0))
        self.columns = np.empty((5, 0))
        self.labels = np.empty((2, 0), np.int32)
        self.gaps = np.empty((max_clusters, 0))  # squared distances to the centres; not stored

    def check_relations(self) -> None:
        expect(self.old_ids.max(initial=-1) < self.n_handed, "a summary has rows that were not passed to it")
        expect(len(self.rows) > 0, "rows have no columns")
        stream = self.stream
        expect((stream is None) == (self.summary_size is None), "a summary is missing, or there should be none")
        if stream is None:
            expect(self.n_handed == 0, "rows were passed to a summary that does not exist")
            return
        # a leaf of another size would never be full, or not fit into memory
        expect(stream.leaf_size == stream.plan.size == self.summary_size, "a summary has another size")
        expect(isinstance(stream.plan.objective, QuasiPosteriorObjective), "a summary is of another objective")
        expect(stream.window is None and self.n_handed <= stream.n_rows, "a summary has lost rows")
        nodes = stream.state.tree.slots
        light = all(max(node.weight_seen, node.weights().max(initial=0.0)) <= _MAX_WEIGHT for node in nodes)
        expect(light, "weights of a summary are out of range")
        like = stream.state.rows.like
        width = len(self.rows) + N_ATTRIBUTES
        expect(like is None or (like.n_features == width and like.X.dtype == np.float64), "a summary is of other rows")

    def check_held(self, n: int, k: int, n_rows: int) -> None:
        """Check that a past read from a file holds ``n`` rows, of ``k`` centres, out of ``n_rows`` rows so far."""
        expect(self.n_old <= n <= self.rows.shape[1], "more rows are held than there is room for")
        expect(self.summary_size is None or n - self.n_old <= self.summary_size, "too many rows wait for the summary")
        expect(n_rows == self.n_handed + n - self.n_old, "rows were lost")
        held = self.columns[:, :n]
        expect(np.isfinite(held[:4]).all() and (held >= 0.0).all(), "losses or weights are no numbers")
        expect(held[0].max(initial=0.0) <= _MAX_WEIGHT, "weights are out of range")
        labels = self.labels[:, :n]
        expect(labels.size == 0 or (labels.min() >= -1 and labels.max() < k), "rows belong to unknown centres")

    @property
    def n_old(self) -> int:
        return len(self.old_ids)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What kernels call the past: rows, columns, labels, gaps."""
        return self.rows, self.columns, self.labels, self.gaps

    def measure_gaps(self, centers: Array, state: Array) -> None:
        """Set the distances, which are not stored."""
        self.gaps = np.zeros((len(centers), self.rows.shape[1]))
        measure_gaps(self.arrays, state[N], centers, state[K])

    def _allocate(self, more: int) -> None:
        arrays = (with_zeros(array, more) for array in self.arrays)
        self.rows, self.columns, self.labels, self.gaps = arrays

    @property
    def nbytes(self) -> int:
        """Bytes of the rows held, and of those in the stream."""
        state = None if self.stream is None else self.stream.state
        blocks = () if state is None else (*state.rows.parts, *state.tree.slots)
        total: int = sum(array.nbytes for array in (*self.arrays, *(block.X for block in blocks)))
        return total

    def room(self, state: Array) -> int:
        """The number of rows that can be added before `make_room`."""
        room: int = self.rows.shape[1] - int(state[N])
        return room if self.summary_size is None else min(room, self.n_old + self.summary_size - int(state[N]))

    def make_room(self, state: Array, centers: Array) -> None:
        """Pass rows to the summary if there are enough of them, else allocate memory for more."""
        n = int(state[N])
        if self.stream is None or n - self.n_old < self.stream.leaf_size:
            more = max(_MIN_ROOM, n)
            self._allocate(more)
            return
        new = slice(self.n_old, n)
        if self.stream.n_rows == self.n_handed:  # if not, the last call was interrupted after the push
            self.stream.push(np.column_stack([self.rows[:, new].T, self.columns[1, new], self.columns[2, new]]))
        coreset = self.stream.coreset()
        self.old_ids, self.old_weights, self.n_handed = coreset.row_ids(), coreset.weights(), self.stream.n_rows
        n_old = state[N] = self.n_old
        more = max(0, n_old + self.stream.leaf_size - self.rows.shape[1])
        self._allocate(more)
        self.rows[:, :n_old] = coreset.X[:, :-2].T
        self.columns[0, :n_old] = self.old_weights
        self.columns[1:3, :n_old] = coreset.X[:, -2:].T
        look_at_all(self.arrays, centers, state)

    def weights_by_age(self, state: Array, decay: float) -> Array:
        """The weights of the rows held by their age alone, whether their cluster has ended or not: (n,)."""
        n_new = int(state[N]) - self.n_old
        return np.concatenate([self.old_weights * decay**n_new, decay ** np.arange(n_new - 1.0, -1.0, -1.0)])

    def widen(self, more: int) -> None:
        """Add ``more`` columns, which are 0 in all rows so far."""
        self.rows = np.concatenate([self.rows, np.zeros((more, self.rows.shape[1]))])
        if self.stream is not None:
            self.stream.state = _widened(self.stream.state, more)

    def block(self, state: Array, n_rows: int) -> Block:
        """The rows held, out of ``n_rows`` rows so far, with their weights and ids."""
        n = int(state[N])
        return Block(
            X=np.ascontiguousarray(self.rows[:, :n].T),
            sample_weight=self.columns[0, :n].copy(),
            indices=np.concatenate([self.old_ids, np.arange(n_rows - (n - self.n_old), n_rows)]),
        )


def with_zeros(array: Array, more: int) -> Array:
    """The array with ``more`` columns of zeros at the end."""
    if more == 0:
        return array
    return np.concatenate([array, np.zeros((*array.shape[:-1], more), array.dtype)], axis=-1)


def _widened(state: StreamState, more: int) -> StreamState:
    """The state of a stream with columns added to all rows. The columns of the attributes stay the last ones."""

    def wider(block: Any) -> Any:
        rows, attributes = block.X[:, :-N_ATTRIBUTES], block.X[:, -N_ATTRIBUTES:]
        return replace(block, X=np.concatenate([with_zeros(rows, more), attributes], axis=1), mean=None)

    def wider_node(node: Coreset) -> Coreset:
        totals = None if node.totals is None else with_zeros(node.totals, more)  # counts, costs, and sums by column
        pilot = None if node.pilot is None else with_zeros(node.pilot, more)
        coreset: Coreset = replace(wider(node), totals=totals, pilot=pilot)
        return coreset

    like, reducer = state.rows.like, state.reducer
    parts = tuple(wider(part) for part in state.rows.parts)
    if reducer is not None and reducer.pilot is not None:
        reducer = replace(reducer, pilot=with_zeros(reducer.pilot, more))
    return replace(
        state,
        rows=replace(state.rows, like=None if like is None else wider(like), parts=parts),
        tree=replace(state.tree, slots=tuple(wider_node(slot) for slot in state.tree.slots)),
        reducer=reducer,
    )
