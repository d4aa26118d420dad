"""The chain of PACO: what it forgets, its history, its schedule, its state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np

from tithe.clustering.kernels import assign
from tithe.core.data import Array, Block
from tithe.core.params import Constraint, OneOf, RealNumber, WholeNumber, check_value
from tithe.core.seeding import rng_for
from tithe.core.state_checks import (
    AnyFloats,
    Each,
    Floats,
    Instance,
    Integer,
    Integers,
    Number,
    Optional,
    Parts,
    Storable,
    StoredState,
    check_fields,
    expect,
    restore,
)
from tithe.online.kernels import (
    ETA,
    ETA_SHARE,
    LAG,
    LARGEST,
    LATEST,
    NEWEST,
    RATE,
    K,
    N,
    look_at_all,
    run_chain,
    swap_chain,
)
from tithe.online.memory import Past, with_zeros
from tithe.online.scale import Pieces, Scale, check_levels, largest_loss, lone_rows, measure_scale

_MIN_EXPECTED = 12.0  # rows of a cluster that goes on; none of them is held with a probability of exp(-12)
_MIN_HALF_LIVES = 1.5  # without a row; shorter pauses are common in streams with days and weeks
_MAX_HALF_LIVES = 60.0  # older rows have no weight; powers of two must not overflow
MAX_ENTRIES = 65_536
_BALL = 2.0  # radius of the prior's ball, in units of the rows' radius R
_MAX_CURB = 0.5  # over the loss of a row; below 1, a lower loss always lowers S_t
_JUMP_CHANCES = (1.0 / 3.0, 0.5)  # of each kind of move, for 1 < k < p and at k = 1 or p
KERNELS = ("birth_death", "symmetric", "paper")
SCALES = ("clusters", "centers")
TINY = 1e-70  # norms below this count as 0, because their fourth powers underflow
_SURVEY_SHARE, _MAX_SURVEY_ROWS = 8, 256  # a survey follows after an eighth of the rows so far, at most 256 rows
_MAX_SURVEY_FORGETFUL = 128  # or so many where rows are forgotten
_USUAL = 2.0  # standard deviations of the loss of a normal cluster above its mean: rows up to that change little
_CALM_SHARE = 3  # while all rows are so, one in three steps is taken


def stale_rows(block: Block, centers: Array, n_rows: int, half_life: float) -> Array:
    """Whether the cluster of each row, that of the nearest of the centres (k, d), has ended: (n,) of bool.

    It got no row for one and a half half-lives, and would have at least 12 of the rows held from this time, by its
    share of the weight when its last row came.
    """
    weight, k = block.weights(), len(centers)
    labels = assign(block.X, centers)[0]
    age = (n_rows - 1.0 - block.row_ids()) / half_life
    gap = np.full(k, np.inf)
    np.minimum.at(gap, labels, age)
    mass = np.bincount(labels, weights=weight, minlength=k)
    share = np.minimum(1.0, mass * 2.0 ** np.minimum(gap, _MAX_HALF_LIVES) / mass.sum())
    held_since = np.searchsorted(np.sort(age), gap)
    ended: Array = (gap >= _MIN_HALF_LIVES) & (share * held_since >= _MIN_EXPECTED)
    return ended[labels]


class History(StoredState):
    """Number of centres, loss and acceptance of each row; from 65,536 rows on, of each 2, 4, 8, ... rows together.

    An entry of several rows has the number of centres and the cumulative loss at the last row, and means of the rest.
    """

    stride: Annotated[int, Integer(least=1, most=2**50)]
    n_rows: Annotated[int, Integer()]
    n_entries: Annotated[int, Integer(most=MAX_ENTRIES - 1)]
    total: Annotated[float, Number(least=0.0)]  # loss so far
    entries: Annotated[Array, Floats(4, "room", any_value=True)]  # centres, loss, cumulative loss, acceptance
    waiting: Annotated[Array, Floats(4, "waiting")]  # rows of an entry that is not complete yet

    def __init__(self) -> None:
        self.stride, self.n_rows, self.n_entries, self.total = 1, 0, 0, 0.0
        self.entries, self.waiting = np.zeros((4, 64)), np.empty((4, 0))

    def check_relations(self) -> None:
        room, n_waiting = self.entries.shape[1], self.waiting.shape[1]
        expect(1 <= room <= 2 * MAX_ENTRIES and self.n_entries <= room, "a history is longer than its memory")
        whole = self.stride & (self.stride - 1) == 0 and n_waiting < self.stride
        expect(whole and self.n_rows == self.n_entries * self.stride + n_waiting, "a history has lost rows")
        expect(np.isfinite(self.entries[:, : self.n_entries]).all(), "a history holds values that are not finite")

    def add(self, n_centers: Array, losses: Array, acceptance: Array) -> None:
        """Add rows in their order. The entries do not depend on how rows are split into batches."""
        cumulative = np.concatenate([[self.total], losses]).cumsum()[1:]  # a running sum from the left
        self.n_rows, self.total = self.n_rows + len(losses), float(cumulative[-1])
        rows = np.concatenate([self.waiting, [n_centers, losses, cumulative, acceptance]], axis=1)
        while rows.shape[1] >= self.stride:
            n = self.stride * min(rows.shape[1] // self.stride, MAX_ENTRIES - self.n_entries)
            self._append(_joined(rows[:, :n], self.stride))
            rows = rows[:, n:]
        self.waiting = rows.copy()

    def _append(self, entries: Array) -> None:
        n = self.n_entries + entries.shape[1]
        while self.entries.shape[1] < n:
            self.entries = np.concatenate([self.entries, np.zeros_like(self.entries)], axis=1)
        self.entries[:, self.n_entries : n] = entries
        self.n_entries = n
        if n == MAX_ENTRIES:
            self.n_entries, self.stride = n // 2, 2 * self.stride
            self.entries[:, : n // 2] = _joined(self.entries[:, :n], 2)

    def as_dict(self) -> dict[str, Any]:
        """Arrays by name. ``row`` is the number of rows at the end of an entry."""
        entries = self.entries[:, : self.n_entries]
        if self.waiting.shape[1]:
            entries = np.concatenate([entries, _joined(self.waiting, self.waiting.shape[1])], axis=1)
        rows = np.minimum(np.arange(1, entries.shape[1] + 1) * self.stride, self.n_rows)
        return {
            "row": rows,
            "k": entries[0].astype(np.int64),
            "loss": entries[1].copy(),
            "cumulative_loss": entries[2].copy(),
            "acceptance": entries[3].copy(),
        }


def _joined(rows: Array, stride: int) -> Array:
    if stride == 1 or rows.shape[1] == 0:
        return rows
    groups = rows.reshape(len(rows), -1, stride)
    last, mean = groups[:, :, -1], groups.mean(axis=2)
    return np.stack([last[0], mean[1], last[2], mean[3]])


PRESETS: dict[str, dict[str, Any]] = {  # values of parameters of `PACO` that are not given
    "practical": {"eta": 1.25, "n_samples": 12},
    "theory": {"eta": 1.0, "n_samples": 500},
}


def inverse_temperature(options: Mapping[str, Any], d: int, radius: float, t: float) -> float:
    """lambda_t of the preset ``"theory"``: given, or (d + 2) / (2 R^2 sqrt(T)), with t for T if there is no horizon."""
    if options["inverse_temperature"] is not None:
        return float(options["inverse_temperature"] / options["temperature"])
    rows = t if options["horizon"] is None else options["horizon"]
    return float((d + 2) / (2.0 * radius**2 * math.sqrt(rows) * options["temperature"]))


def schedule(options: Mapping[str, Any], d: int, radius: float, scale: Scale | None) -> Array:
    """Numbers from which `tithe.online.kernels.run_chain` computes temperatures, curbs and penalties."""
    preset, eta, temperature = options["preset"], float(options["eta"]), options["temperature"]
    hot, never = (d + 2) / (2.0 * radius**2), np.inf
    if preset == "theory":
        falls = options["horizon"] is None and options["inverse_temperature"] is None
        rate = inverse_temperature(options, d, radius, 1.0)
        return np.array([rate, 0.0 if falls else np.inf, rate, never, eta, 0.0, never, never, never])
    if scale is None:  # no rows were measured yet
        return np.array([0.0, 0.0, hot, _MAX_CURB, 0.0, 0.0, never, never, never])
    variance = max(scale.variance, (1e-12 * radius) ** 2)  # equal rows have variance 0
    rate = (d + 2) / (2.0 * variance * temperature)
    most = largest_loss(variance, d)
    noise = most if scale.noise > 0.0 else never
    usual = variance * (d + _USUAL * math.sqrt(2.0 * d))
    return np.array([rate, 0.0, hot, _MAX_CURB, 0.0, eta * variance * scale.split, most, noise, usual])


def student_scale(preset: str, max_clusters: int, t: float, rate: float, ball: float) -> float:
    """tau of the proposals around means: 1 / sqrt(p t) for "theory", else the width of the law of a centre."""
    if preset == "theory":
        return 1.0 / math.sqrt(max_clusters * t)
    return 0.5 * math.sqrt(max_clusters / max(rate * t, 0.25 * max_clusters / ball**2))


def log_student_constant(tau: Array | float, d: int) -> Any:
    """ln of the factor that makes (1 + |c|^2 / (6 tau^2))^(-(3 + d) / 2) a density."""
    return math.lgamma(0.5 * (3 + d)) - math.lgamma(1.5) - 0.5 * d * np.log(6.0 * math.pi * np.asarray(tau) ** 2)


def log_ball_density(radius: float, d: int) -> float:
    """ln of one over the volume of a ball."""
    return math.lgamma(0.5 * d + 1.0) - 0.5 * d * math.log(math.pi) - d * math.log(radius)


def jump_table(max_clusters: int) -> tuple[Array, Array]:
    """Probabilities (p + 1, 3) of k - 1, k and k + 1 centres after k, and ln of reverse over forward ones."""
    p = max_clusters
    chances = np.full((p + 1, 3), _JUMP_CHANCES[0])
    chances[1], chances[p] = (0.0, _JUMP_CHANCES[1], _JUMP_CHANCES[1]), (_JUMP_CHANCES[1], _JUMP_CHANCES[1], 0.0)
    if p == 1:
        chances[1] = (0.0, 1.0, 0.0)
    ratios = np.zeros((p + 1, 3))
    for k in range(1, p):
        ratios[k, 2] = math.log(chances[k + 1, 0] / chances[k, 2])
        ratios[k + 1, 0] = -ratios[k, 2]
    return chances, ratios


def anchors_of(scale: Scale, rate: float, ball: float) -> tuple[Array, Array, Array, int, Array]:
    """Anchors (a, d), tau and log constants (a,) of new centres, the number of clusters, and levels."""
    latest = np.arange(LATEST) % len(scale.anchors)
    anchors = np.concatenate([scale.anchors, scale.anchors[latest]])
    taus = 0.5 / np.sqrt(np.maximum(rate * scale.weights, 1e-300))
    taus = np.clip(np.concatenate([taus, np.full(LATEST, 0.5 * math.sqrt(scale.variance))]), 1e-9 * ball, ball)
    return anchors, taus, log_student_constant(taus, anchors.shape[1]), scale.n_cut, scale.levels


CONSTRAINTS: dict[str, Constraint] = {  # of the parameters of `PACO`
    "max_clusters": WholeNumber(least=1),
    "preset": OneOf(*PRESETS),
    "n_samples": OneOf(None) | WholeNumber(least=1),
    "kernel": OneOf(*KERNELS),
    "radius": OneOf("auto") | RealNumber(above=0.0),
    "beyond_radius": OneOf("restart", "error"),
    "eta": OneOf(None) | RealNumber(least=0.0),
    "scale": OneOf(*SCALES),
    "horizon": OneOf(None) | WholeNumber(least=1),
    "inverse_temperature": OneOf(None) | RealNumber(above=0.0),
    "temperature": RealNumber(above=0.0, finite=False),
    "half_life": OneOf(None) | RealNumber(above=0.0),
    "summary_size": OneOf(None) | WholeNumber(least=2),
}
_DRAWS = Parts(Floats("a", "d"), Floats("a", least=1e-300), Floats("a"), Integer(), Integers(("p", 1), "p", least=-1))


class Chain(Storable):
    """The centres that predict the next row, the past rows, and the history; parameters of `PACO` as ``options``."""

    options: Annotated[dict[str, Any], Instance(dict)]
    seed: Annotated[int, Integer(least=0, most=2**64)]
    dice: Annotated[int, Integer(least=0)]
    past: Annotated[Past, Instance(Past)]
    history: Annotated[History, Instance(History)]
    restarts: Annotated[list[tuple[int, float]], Each(Parts(Integer(), Number(least=0.0)))]
    n_rows: Annotated[int, Integer()]
    next_survey: Annotated[int, Integer(least=1)]
    centers: Annotated[Array, Floats("p", "d")]
    state: Annotated[Array, Integers(4, least=0)]
    clock: Annotated[Array, Floats(2, least=0.0)]
    scale: Annotated[Scale | None, Optional(Instance(Scale))]
    draws: Annotated[tuple[Array, Array, Array, int, Array], _DRAWS]
    means: Annotated[Array, AnyFloats()]
    stamps: Annotated[Array, Integers("stamps", least=-1)]
    radius: Annotated[float, Number(least=0.0)]

    def __init__(self, options: dict[str, Any], n_features: int, seed: int) -> None:
        p = int(options["max_clusters"])
        self.options, self.seed = options, seed
        self.dice = int(rng_for(seed, "chain").integers(2**62))
        self.past = Past(
            n_features,
            p,
            summary_size=options["summary_size"],
            half_life=options["half_life"],
            seed=int(rng_for(seed, "summary").integers(2**62)),
        )
        self.history = History()
        self.restarts = []
        self.n_rows, self.next_survey = 0, 1
        self.centers = np.zeros((p, n_features))
        self.state = np.array([0, 1, 0, 0])
        self.clock = np.zeros(2)
        self.scale = None
        self.draws = np.zeros((0, n_features)), np.zeros(0), np.zeros(0), 0, np.full((p + 1, p), -1)
        self.means = np.zeros((p + 1, p, n_features) if self.swaps else (0, 0, n_features))
        self.stamps = np.full(len(self.means), -1)
        self.radius = 0.0
        self._derive(p)
        if options["radius"] != "auto":
            self._set_radius(float(options["radius"]))
            self._start()

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        options: dict[str, Any] = record.get("options", {})
        expect(isinstance(options, dict) and options.keys() == CONSTRAINTS.keys(), "a chain has other options")
        for name, constraint in CONSTRAINTS.items():
            check_value(name, options[name], constraint)
        expect(options["n_samples"] is not None and options["eta"] is not None, "a chain has no steps or no penalty")
        p = int(options["max_clusters"])
        check_fields(record, cls.stored_checks(), sizes={"p": p}, who=cls.__name__)
        chain = restore(cls.__new__(cls), record)
        expect(chain.radius == 0.0 or TINY <= chain.radius <= 4.0 / TINY, "a radius is out of range")
        chain._derive(p)
        chain.check_relations()
        chain.past.measure_gaps(chain.centers, chain.state)
        return chain

    def _derive(self, p: int) -> None:
        """Set what follows from options, radius and scale."""
        half_life = self.options["half_life"]
        self.decay = 1.0 if half_life is None else 2.0 ** (-1.0 / float(half_life))  # of weights, with each row
        self.jumps, self.jump_ratios = jump_table(p)
        self.prior, self.schedule = np.array([0.0, 0.0, TINY]), np.zeros(9)
        if self.radius > 0.0:
            self._set_radius(self.radius)

    def check_relations(self) -> None:
        (p, d), k, n = self.centers.shape, int(self.state[K]), int(self.state[N])
        expect(self.options["kernel"] != "symmetric" or p <= LARGEST, "there are too many clusters for this kernel")
        expect(1 <= k <= p and 0 <= self.state[NEWEST] < LATEST, "counters are out of range")
        past = self.past
        expect(len(past.rows) == d and past.summary_size == self.options["summary_size"], "a past has other rows")
        past.check_held(n, k, self.n_rows)
        expect(self.history.n_rows == self.n_rows, "a history has other rows")
        self._check_draws()
        Floats(*((p + 1, p, d) if self.swaps else (0, 0, d))).check("means", self.means, {})
        Integers(len(self.means), least=-1).check("stamps", self.stamps, {})

    def _check_draws(self) -> None:
        scale, (anchors, _, _, n_cut, levels) = self.scale, self.draws
        old = max(0, len(anchors) - LATEST)
        expect(len(anchors) == 0 or len(anchors) > LATEST, "anchors are missing")
        expect(n_cut <= old and levels.max() < max(old, 1), "anchors are out of range")
        check_levels(levels)
        expect(len(anchors) > 0 or levels.max() < 0, "levels have no anchors")
        if scale is not None:
            same = (scale.levels.shape[1], scale.anchors.shape[1]) == self.centers.shape
            expect(same, "a scale has other rows")

    @property
    def swaps(self) -> bool:
        """Whether all centres are proposed at once, round k-means solutions of the past."""
        return bool(self.options["kernel"] != "birth_death")

    @property
    def forgets(self) -> bool:
        """Whether clusters that get no rows any more are forgotten at once."""
        return self.options["half_life"] is not None and self.options["preset"] == "practical"

    @property
    def current(self) -> Array:
        """The centres that the next row is predicted with: (k, d)."""
        return self.centers[: self.state[K]].copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the past and of the history."""
        return self.past.nbytes + self.history.entries.nbytes + self.means.nbytes

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuse other options than those that the rows so far were taken with."""
        if self.options != options:
            raise ValueError(
                "The parameters have changed since the first rows came. Set them back, or start anew with a clone."
            )

    def widen(self, n_features: int) -> None:
        """Go on with rows of so many columns; new ones were 0 in all rows so far."""
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
        d, ball = self.centers.shape[1], _BALL * radius
        self.radius = radius
        self.prior = np.array([log_ball_density(ball, d), ball, radius])
        self.schedule = schedule(self.options, d, radius, self.scale)

    def _enlarge_radius(self, norm: float) -> None:
        """Double the radius until a row of this norm lies within."""
        radius = self.radius or norm
        while radius < norm:
            radius *= 2.0
        if self.radius:
            self.restarts.append((self.n_rows, radius))
        self._set_radius(radius)

    def take(self, X: Array) -> None:
        """Predict each row, add it to the past, and continue the chain. After an interruption the rows so far stay."""
        n, done = len(X), 0
        n_centers, losses, accepted = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
        try:
            while done < n:
                if self.past.room(self.state) == 0:
                    self._make_room()
                alone = self.swaps or self.n_rows + 1 >= self.next_survey
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
                    accepted[done - 1] = self._swap() if self.swaps else self._survey_and_sample()
        finally:
            if done:
                self.history.add(n_centers[:done], losses[:done], accepted[:done])

    def _make_room(self) -> None:
        n_handed = self.past.n_handed
        self.past.make_room(self.state, self.centers)
        if self.options["preset"] == "practical" and self.past.n_handed > n_handed and self.scale is not None:
            self.next_survey = self.n_rows + 1  # rows that were left out came back with the summary

    def _measure(self) -> Scale:
        """The scale of the past, without rows of clusters that have ended, and those that are far and do not recur.

        They have no weight as long as that is so.
        """
        p, block = len(self.centers), self.past.block(self.state, self.n_rows)
        k = int(self.state[K]) if self.options["scale"] == "centers" else 1
        if (block.weights() == 0.0).any():
            block = replace(block, sample_weight=self.past.weights_by_age(self.state, self.decay))

        def cut(left_out: Array) -> tuple[Block, Pieces]:
            rows = block.take(np.flatnonzero(~left_out)) if left_out.any() else block
            return rows, Pieces.of(rows, p, self.dice, self.n_rows)

        none = np.zeros(len(block), bool)
        if self.options["preset"] != "practical":
            return measure_scale(*cut(none), p, k)
        left_out = none if self.scale is None else lone_rows(block, self.scale)
        rows, pieces = cut(left_out)
        sound = pieces.without_noise()  # noise makes all clusters seem wider, so that none is seen: look for it first
        scale = measure_scale(rows, sound, p, k)
        lone = lone_rows(block, scale)
        if not lone.any() and (sound is not pieces or left_out.any()):
            rows, pieces = cut(none) if left_out.any() else (rows, pieces)
            left_out, scale = none, measure_scale(rows, pieces, p, k)
            lone = lone_rows(block, scale)
        noise = float(block.weights()[lone].sum() / block.total_weight)
        if self.forgets:
            half_life = float(self.options["half_life"])
            lone |= stale_rows(block, scale.anchors[: scale.n_cut], self.n_rows, half_life)
        self.past.columns[0, : len(block)] = np.where(lone, 0.0, block.weights())
        if not np.array_equal(lone, left_out):
            rows, pieces = cut(lone)
            scale = measure_scale(rows, pieces.without_noise() if noise > 0.0 else pieces, p, k)
        return replace(scale, noise=noise)

    def _survey(self) -> None:
        """Measure the scale of the past."""
        self.scale = self._measure()
        self.schedule = schedule(self.options, self.centers.shape[1], self.radius, self.scale)
        most = _MAX_SURVEY_ROWS if self.options["half_life"] is None else _MAX_SURVEY_FORGETFUL
        self.next_survey = self.n_rows + max(1, min(self.n_rows // _SURVEY_SHARE, most))

    def _temperature(self) -> tuple[float, float, float]:
        """Inverse temperature, penalty of a centre and weight of the past, as `run_chain` computes them."""
        total = float(self.clock[0])
        rate = self.schedule[RATE] / math.sqrt(max(1.0, total - self.schedule[LAG]))
        return rate, self.schedule[ETA] + self.schedule[ETA_SHARE] * rate * total, total

    def _survey_and_sample(self) -> float:
        self._survey()
        rate, eta, total = self._temperature()
        assert self.scale is not None
        self.draws = anchors_of(self.scale, rate, self.prior[1])
        no_rows, no_numbers, accepted = np.empty((0, self.centers.shape[1])), np.empty(0), np.empty(1)
        law, n_steps = np.array([rate, eta, total]), self.options["n_samples"]
        self._run(no_rows, self.n_rows - 1, law, n_steps, np.empty(0, np.int64), no_numbers, accepted)
        return float(accepted[0])

    def _run(
        self, X: Array, first_row: int, law: Array, n_steps: int, n_centers: Array, losses: Array, accepted: Array
    ) -> None:
        n_calm = -(-n_steps // _CALM_SHARE) if self.options["preset"] == "practical" else n_steps
        run_chain(
            X, first_row, self.dice, self.past.arrays, self.centers, self.state, self.clock, self.draws, self.prior,
            self.jumps, self.jump_ratios, self.schedule, self.decay, law, n_steps, n_calm, n_centers, losses, accepted,
        )  # fmt: skip

    def _swap(self) -> float:
        o, (p, d) = self.options, self.centers.shape
        if o["preset"] == "practical" and self.n_rows >= self.next_survey:
            self._survey()
        rate, eta, total = self._temperature()
        tau = student_scale(o["preset"], p, max(1.0, total), rate, self.prior[1])
        accepted = swap_chain(
            self.n_rows - 1, self.dice, self.past.arrays, self.centers, self.state, self.means, self.stamps, tau,
            float(log_student_constant(tau, d)), o["kernel"] == "symmetric", True, self.prior, self.jumps,
            self.jump_ratios, rate, eta, o["n_samples"],
        )  # fmt: skip
        look_at_all(self.past.arrays, self.centers, self.state)
        return float(accepted / o["n_samples"])


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedChain(Storable):
    """What is left of a `Chain` when its rows are not saved: enough to predict, but not to take more rows."""

    centers: Annotated[Array, Floats("k", "d", empty=False)]
    history: History
    restarts: list[tuple[int, float]]
    n_rows: Annotated[int, Integer(least=1)]
    radius: Annotated[float, Number(least=0.0)]

    @property
    def current(self) -> Array:
        """The centres: (k, d)."""
        return self.centers.copy()
