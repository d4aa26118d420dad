"""The Markov chain of centres, which is all of the state of `PACO`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.seeding import rng_for
from tithe.core.state_checks import (
    Anything,
    Each,
    Floats,
    Instance,
    Integer,
    Integers,
    Number,
    Optional,
    Parts,
    Storable,
    Text,
    check_fields,
    expect,
)
from tithe.kernels.online.birth_death import (
    ETA,
    ETA_SHARE,
    LAG,
    LATEST,
    NEWEST,
    RATE,
    K,
    N,
    look_at_all,
    run_chain,
)
from tithe.kernels.online.swap import LARGEST, swap_chain
from tithe.learners.online.forgetting import stale_rows
from tithe.learners.online.history import History
from tithe.learners.online.memory import Past, with_zeros
from tithe.learners.online.scale import Scale, check_levels, measure_scale
from tithe.learners.online.schedule import (
    PRESETS,
    anchors_of,
    jump_table,
    log_ball_density,
    log_student_constant,
    schedule,
    student_scale,
)

KERNELS = ("birth_death", "symmetric", "paper")
SCALES = ("clusters", "centers")
TINY = 1e-70  # norms below this count as 0, because their fourth powers underflow
_SURVEY_SHARE, _MAX_SURVEY_ROWS = 8, 128  # a survey follows after an eighth of the rows so far, at most 128 rows


_OPTIONS = {
    "max_clusters": Integer(least=1, most=2**20),
    "preset": Text(tuple(PRESETS)),
    "kernel": Text(KERNELS),
    "n_samples": Integer(least=1),
    "eta": Number(least=0.0),
    "scale": Text(SCALES),
    "horizon": Optional(Integer(least=1)),
    "inverse_temperature": Optional(Number(least=TINY)),
    "temperature": Number(least=TINY, finite=False),
    "half_life": Optional(Number(least=TINY)),
    "summary_size": Optional(Integer(least=2)),
    "radius": Anything(),
    "beyond_radius": Text(("restart", "error")),
}
_STATE = {
    "seed": Integer(least=0, most=2**64),
    "dice": Integer(least=0),
    "past": Instance(Past),
    "history": Instance(History),
    "restarts": Each(Parts(Integer(), Number(least=0.0))),
    "n_rows": Integer(),
    "next_survey": Integer(least=1),
    "centers": Floats("p", "d"),
    "state": Integers(3, least=0),
    "clock": Floats(2, least=0.0),
    "scale": Optional(Instance(Scale)),
    "draws": Parts(
        Floats("a", "d"), Floats("a", least=1e-300), Floats("a"), Integer(), Integers(("p", 1), "p", least=-1)
    ),
    "jumps": Floats(("p", 1), 3),
    "jump_ratios": Floats(("p", 1), 3),
    "radius": Number(least=0.0),
    "prior": Floats(3),
    "schedule": Floats(7, finite=False),
    "decay": Number(least=0.0, most=1.0),
}


def _decay(options: dict[str, Any]) -> float:
    """The factor of the weights of the past with each new row."""
    return 1.0 if options["half_life"] is None else 2.0 ** (-1.0 / float(options["half_life"]))


class Chain(Storable):
    """The centres that predict the next row, the past rows, and the history.

    Parameters
    ----------
    options : dict
        The parameters of `PACO`, with those of the preset filled in.
    n_features, seed : int
    """

    def __init__(self, options: dict[str, Any], n_features: int, seed: int) -> None:
        p = int(options["max_clusters"])
        self.options, self.seed = options, seed
        self.dice = int(rng_for(seed, "chain").integers(2**62))
        self.decay = _decay(options)
        self.past = Past(
            n_features,
            p,
            summary_size=options["summary_size"],
            half_life=options["half_life"],
            seed=int(rng_for(seed, "summary").integers(2**62)),
        )
        self.history = History()
        self.restarts: list[tuple[int, float]] = []
        self.n_rows, self.next_survey = 0, 1
        self.centers = np.zeros((p, n_features))
        self.state = np.array([0, 1, 0])
        self.clock = np.zeros(2)
        self.scale: Scale | None = None
        self.draws = np.zeros((0, n_features)), np.zeros(0), np.zeros(0), 0, np.full((p + 1, p), -1)
        swaps = options["kernel"] != "birth_death"  # only these kernels need k-means solutions
        self.means = np.zeros((p + 1, p, n_features) if swaps else (0, 0, n_features))
        self.stamps = np.full(len(self.means), -1)
        self.jumps, self.jump_ratios = jump_table(p)
        self.radius = 0.0
        self.prior, self.schedule = np.array([0.0, 0.0, TINY]), np.zeros(7)
        if options["radius"] != "auto":
            self._set_radius(float(options["radius"]))
            self._start()

    def _check_state(self) -> None:
        check_fields(self.options, _OPTIONS)
        p = int(self.options["max_clusters"])
        sizes = check_fields(self, _STATE, sizes={"p": p})
        d, k, n = sizes["d"], int(self.state[K]), int(self.state[N])
        expect(self.options["kernel"] != "symmetric" or p <= LARGEST, "there are too many clusters for this kernel")
        expect(1 <= k <= p and 0 <= self.state[NEWEST] < LATEST, "counters are out of range")
        expect(self.radius == 0.0 or TINY <= self.radius <= 4.0 / TINY, "a radius is out of range")
        past = self.past
        expect(len(past.rows) == d and past.summary_size == self.options["summary_size"], "a past has other rows")
        past.check_held(n, k, self.n_rows)
        expect(self.history.n_rows == self.n_rows, "a history has other rows")
        self._check_draws(sizes)
        swaps = self.options["kernel"] != "birth_death"
        Floats(*((p + 1, p, d) if swaps else (0, 0, d))).check("means", self.means, {})
        Integers(len(self.means), least=-1).check("stamps", self.stamps, {})
        self._check_derived()

    def _check_draws(self, sizes: dict[str, int]) -> None:
        scale, (anchors, _, _, n_cut, levels) = self.scale, self.draws
        old = max(0, len(anchors) - LATEST)
        expect(len(anchors) == 0 or len(anchors) > LATEST, "anchors are missing")
        expect(n_cut <= old and levels.max() < max(old, 1), "anchors are out of range")
        check_levels(levels)
        expect(len(anchors) > 0 or levels.max() < 0, "levels have no anchors")
        if scale is not None:
            same = scale.anchors.shape[1] == sizes["d"] and scale.levels.shape[1] == sizes["p"]
            expect(same, "a scale has other rows")

    def _check_derived(self) -> None:
        """Check attributes that follow from others."""
        jumps, ratios = jump_table(len(self.centers))
        expect(
            np.array_equal(self.jumps, jumps) and np.array_equal(self.jump_ratios, ratios), "moves are not those of k"
        )
        expect(np.isclose(self.decay, _decay(self.options), rtol=1e-12), "a decay is not that of the half-life")
        prior, schedule = self.prior, self.schedule
        blank = np.array([0.0, 0.0, TINY]), np.zeros(7)
        if self.radius > 0.0:
            self._set_radius(self.radius)
        else:
            self.prior, self.schedule = blank
        same = np.allclose(prior, self.prior, rtol=1e-9) and np.allclose(schedule, self.schedule, rtol=1e-9)
        self.prior, self.schedule = prior, schedule
        expect(same, "temperatures do not follow from the rows")

    @property
    def forgets(self) -> bool:
        """Whether clusters that get no rows any more are forgotten at once."""
        return self.options["half_life"] is not None and self.options["preset"] == "practical"

    @property
    def current(self) -> Array:
        """The centres that the next row is predicted with: (k, d)."""
        return self.centers[: self.state[K]].copy()

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuse other options than those that the rows so far were taken with."""
        if self.options != options:
            raise ValueError(
                "The parameters have changed since the first rows came. Set them back, or start anew with a clone."
            )

    def widen(self, n_features: int) -> None:
        """Continue with more columns, which were 0 in all rows so far."""
        more = n_features - self.centers.shape[1]
        if more == 0:
            return
        self.past.widen(more)
        self.centers, self.means = with_zeros(self.centers, more), with_zeros(self.means, more)
        anchors, taus, _, n_cut, levels = self.draws
        constants = np.asarray(log_student_constant(taus, n_features)) if len(taus) else taus
        self.draws = with_zeros(anchors, more), taus, constants, n_cut, levels
        if self.scale is not None:
            self.scale = replace(self.scale, anchors=with_zeros(self.scale.anchors, more))
        self.next_survey = self.n_rows + 1  # the variance in one direction has changed
        if self.radius:
            self._set_radius(self.radius)

    def _start(self) -> None:
        """Draw the first centres from the prior."""
        rng, p, d = rng_for(self.seed, "start"), len(self.centers), self.centers.shape[1]
        weights = np.exp(-self.schedule[ETA] * np.arange(p))
        k = self.state[K] = 1 + int(rng.choice(p, p=weights / weights.sum()))
        direction = rng.normal(size=(k, d))
        distance = self.prior[1] * rng.random((k, 1)) ** (1.0 / d)
        self.centers[:k] = direction / np.linalg.norm(direction, axis=1, keepdims=True) * distance

    def _set_radius(self, radius: float) -> None:
        d, ball = self.centers.shape[1], PRESETS[self.options["preset"]].ball * radius
        self.radius = radius
        self.prior = np.array([log_ball_density(ball, d), ball, radius])
        self._set_schedule()

    def _set_schedule(self) -> None:
        self.schedule = schedule(self.options, self.centers.shape[1], self.radius, self.scale)

    def _enlarge_radius(self, norm: float) -> None:
        """Double the radius until a row of this norm lies within."""
        radius = self.radius or norm
        while radius < norm:
            radius *= 2.0
        if self.radius:
            self.restarts.append((self.n_rows, radius))
        self._set_radius(radius)

    def take(self, X: Array) -> None:
        """Predict each row, add it to the past, and continue the chain.

        After an interruption, the rows added so far stay, and the history is that of these rows.
        """
        n, done = len(X), 0
        n_centers, losses, accepted = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
        swaps = self.options["kernel"] != "birth_death"
        try:
            while done < n:
                if self.past.room(self.state) == 0:
                    self._make_room()
                alone = swaps or self.n_rows + 1 >= self.next_survey
                m = 1 if alone else min(n - done, self.past.room(self.state), self.next_survey - 1 - self.n_rows)
                steps = 0 if alone or not self.radius else self.options["n_samples"]
                held = int(self.state[N])
                try:
                    rows = X[done : done + m]
                    self._run(rows, self.n_rows, np.empty(3), steps, n_centers[done:], losses[done:], accepted[done:])
                finally:  # an interrupt is raised when the kernel returns; its rows must be counted
                    n_added = int(self.state[N]) - held
                    self.n_rows += n_added
                    done += n_added
                if n_added < m:
                    self._enlarge_radius(float(self.clock[1]))
                elif alone and self.radius:
                    accepted[done - 1] = self._swap() if swaps else self._survey_and_sample()
        finally:
            if done:
                self.history.add(n_centers[:done], losses[:done], accepted[:done] / self.options["n_samples"])

    def _make_room(self) -> None:
        n_handed = self.past.n_handed
        self.past.make_room(self.state, self.centers)
        if self.forgets and self.past.n_handed > n_handed:
            self._measure()  # rows of clusters that have ended came back with the summary

    def _measure(self) -> Scale:
        """The scale of the past. Rows of clusters that have ended lose their weight as long as no row comes there."""
        p, block = len(self.centers), self.past.block(self.state, self.n_rows)
        k = int(self.state[K]) if self.options["scale"] == "centers" else 1
        if self.forgets and (block.weights() == 0.0).any():
            block = replace(block, sample_weight=self.past.weights_by_age(self.state, self.decay))
        scale = measure_scale(block, p, rng_for(self.seed, self.n_rows, "scale"), k)
        if not self.forgets:
            return scale
        ended = stale_rows(block, scale.anchors[: scale.n_cut], self.n_rows, float(self.options["half_life"]))
        self.past.columns[0, : len(block)] = np.where(ended, 0.0, block.weights())
        if not ended.any():
            return scale
        return measure_scale(block.take(np.flatnonzero(~ended)), p, rng_for(self.seed, self.n_rows, "scale"), k)

    def _survey(self) -> None:
        """Measure the scale of the past."""
        self.scale = self._measure()
        self._set_schedule()
        self.next_survey = self.n_rows + max(1, min(self.n_rows // _SURVEY_SHARE, _MAX_SURVEY_ROWS))

    def _temperature(self) -> tuple[float, float, float]:
        """Inverse temperature, penalty of a centre and weight of the past, as `run_chain` computes them."""
        total = float(self.clock[0])
        rate = self.schedule[RATE] / math.sqrt(max(1.0, total - self.schedule[LAG]))
        return rate, self.schedule[ETA] + self.schedule[ETA_SHARE] * rate * total, total

    def _survey_and_sample(self) -> int:
        self._survey()
        rate, eta, total = self._temperature()
        assert self.scale is not None
        self.draws = anchors_of(self.scale, rate, self.prior[1])
        no_rows, no_numbers, accepted = np.empty((0, self.centers.shape[1])), np.empty(0), np.empty(1)
        law, n_steps = np.array([rate, eta, total]), self.options["n_samples"]
        self._run(no_rows, self.n_rows - 1, law, n_steps, np.empty(0, np.int64), no_numbers, accepted)
        return int(accepted[0])

    def _run(
        self, X: Array, first_row: int, law: Array, n_steps: int, n_centers: Array, losses: Array, accepted: Array
    ) -> None:
        run_chain(
            X, first_row, self.dice, self.past.arrays, self.centers, self.state, self.clock, self.draws, self.prior,
            self.jumps, self.jump_ratios, self.schedule, self.decay, law, n_steps, n_centers, losses, accepted,
        )  # fmt: skip

    def _swap(self) -> int:
        o, (p, d) = self.options, self.centers.shape
        if o["preset"] == "practical" and self.n_rows >= self.next_survey:
            self._survey()
        rate, eta, total = self._temperature()
        tau = student_scale(o["preset"], p, d, max(1.0, total), rate, self.prior[1])
        accepted = swap_chain(
            self.n_rows - 1, self.dice, self.past.arrays, self.centers, self.state, self.means, self.stamps, tau,
            float(log_student_constant(tau, d)), o["kernel"] == "symmetric", True, self.prior, self.jumps,
            self.jump_ratios, rate, eta, o["n_samples"],
        )  # fmt: skip
        look_at_all(self.past.arrays, self.centers, self.state)
        return int(accepted)


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedChain(Storable):
    """What is left of a `Chain` when its rows are not saved: enough to predict, but not to take more rows."""

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
        table = {"centers": Floats("k", "d"), "n_rows": Integer(least=1), "radius": Number(least=0.0)}
        sizes = check_fields(self, table)
        expect(sizes["k"] > 0, "there are no centres")
