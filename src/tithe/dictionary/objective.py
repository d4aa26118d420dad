"""Dictionary learning: signals as sums of few atoms."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import ArpackError, svds
from sklearn.utils import check_array

from tithe.clustering.kernels import point_costs
from tithe.clustering.objective import KMeansObjective
from tithe.core.contracts import NearestObjective, Source
from tithe.core.data import Array, Block, Coreset, Moments, Scores, Survey
from tithe.core.parallel import column_means, single_blas_thread
from tithe.core.params import (
    Boolean,
    Constraint,
    Instance,
    OneOf,
    Option,
    RealNumber,
    WholeNumber,
    check_params,
    check_value,
)
from tithe.core.passes import DataPass
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Optional, Storable, expect
from tithe.dictionary.atom_kernels import subspace_errors
from tithe.dictionary.solver import Coding, data_atoms, learn_dictionary, unit
from tithe.reduce.draws import MeanPilotObjective
from tithe.reduce.kernels import sample_rows
from tithe.reduce.plan import build_coreset
from tithe.rows.arrays import as_block, as_rows
from tithe.theory.theorems import SizeBound, SizeQuestion, TheoremObjective, by_bernstein

ReferenceKind = Literal["constant", "mean_line", "mean_point", "singular", "kmeans", "ksvd", "projective"]
_SINGLE_VECTORS = ("constant", "mean_line", "mean_point")
_MANY_ATOMS = ("kmeans", "ksvd", "projective")  # by default as many as the dictionary has
REFERENCE_OPTIONS = (
    Option("reference", OneOf(*get_args(ReferenceKind)), "The rough dictionary that rows are scored by."),
    Option("n_reference", OneOf(None) | WholeNumber(least=1), "Its singular vectors, atoms or subspaces."),
    Option("beta", RealNumber(least=0.0, most=1.0), "Share of the draws that is uniform."),
    Option("include_reference", Boolean(), "Keep the rough dictionary among the atoms, which --beta 0 needs."),
)

_TINY = float(np.finfo(np.float64).tiny)  # a smaller number has no inverse
_SAMPLE_ROWS = 5000  # rows that a reference is learned from
_MAX_SQUARE = 500  # columns whose second moments are formed
_LANCZOS_SHARE = 5  # of the singular vectors, up to a fifth is found by Lanczos' method
_N_STARTS, _N_ROUNDS = 3, 5  # of the search for subspaces
_MAX_LENGTH_ERROR = 1e-6  # of the square of the length of an atom that is given
_QUERY_NOISE = 0.3  # length of the noise that is added to a unit atom


@dataclass(frozen=True)
class Reference(Storable):
    """The rough dictionary D0 that rows are drawn by, as a parameter of `KSVD`.

    Its ``kind``, ``size``, ``beta`` and ``include`` are ``reference``, ``n_reference``, ``beta`` and
    ``include_reference`` of `DictionaryObjective`, which says what they mean. ``kind`` may be an array (r, d) of atoms
    of one's own, of any length above 0.

    Examples
    --------
    >>> from tithe.dictionary import KSVD, Reference
    >>> KSVD(64, reference=Reference("singular", size=4)).reference.size
    4
    """

    kind: ReferenceKind | Array = "constant"
    size: int | None = None
    beta: float = 0.1
    include: bool = False

    @classmethod
    def of(cls, reference: Reference | ReferenceKind | Array) -> Reference:
        return reference if isinstance(reference, Reference) else cls(reference)

    def objective(self, **more: Any) -> DictionaryObjective:
        kind = self.kind if isinstance(self.kind, str) else GivenAtoms.of(self.kind)
        return DictionaryObjective(
            reference=kind, n_reference=self.size, beta=self.beta, include_reference=self.include, **more
        )


@dataclass(frozen=True, eq=False)
class GivenAtoms(Storable):
    """Atoms (r, d) of unit length that someone gave as a reference."""

    atoms: Annotated[Array, Floats("r", "d", empty=False)]

    @classmethod
    def of(cls, rows: Any) -> GivenAtoms:
        given = check_array(rows, dtype=np.float64, input_name="reference")
        atoms = unit(given)
        if len(atoms) < len(given):
            raise ValueError("reference has rows of zeros, which cannot be atoms.")
        return cls(atoms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GivenAtoms) and np.array_equal(self.atoms, other.atoms)

    def __hash__(self) -> int:
        return hash(self.atoms.tobytes())


REFERENCE = (  # values of the parameter
    OneOf(*get_args(ReferenceKind)) | Instance(Reference, "a Reference") | Instance(np.ndarray, "an array of atoms")
)


@dataclass(frozen=True, kw_only=True)
class DictionaryObjective(TheoremObjective, MeanPilotObjective, NearestObjective):
    """f_D(y) = min |y - a D|^2 over codes a of at most T nonzero entries; D has k unit rows, the atoms.

    Parameters
    ----------
    n_components : int
        k, the number of atoms.
    n_nonzero_coefs : int
        The number T of atoms in a code. At most the number of atoms and the number of columns.
    reference : {"constant", "mean_line", "mean_point", "singular", "kmeans", "ksvd", "projective"} or GivenAtoms
        The rough dictionary D0 that rows are scored by: the constant signal, which needs no pass over the data;
        the line through the mean row; the mean row itself, whose error is |y - mean|^2; top singular vectors; unit
        vectors towards the centres of k-means; atoms after one iteration of K-SVD; subspaces of dimension T. All but
        the first are learned from a sample of the rows. Or atoms of one's own: `Reference` takes them as an array.
    n_reference : int, optional
        The number of singular vectors (by default T), of atoms (k), or of subspaces (k / T). The other references are
        one vector. Of more than T singular vectors each row uses the T that represent it best.
    beta : float
        Share of the draws that is uniform. 0 needs ``include_reference``: rows that D0 represents without error, such
        as flat patches of an image, are then never drawn, and a dictionary without D0 may have an error there.
    include_reference : bool
        The dictionaries that the coreset has to serve contain D0: `solve` keeps its vectors as the first atoms, and
        learns the others. The cost of a row is then never above that of a pursuit with these vectors alone.
    positive : bool
        Codes and atoms of `solve` are not negative.
    max_iter : int
        Iterations of K-SVD in `solve`.

    Notes
    -----
    A row is drawn with p(y) = (1 - beta) u err(y, D0) / cost(D0) + beta u / W (Feldman, Feigin and Sochen
    2013, with beta = 0 and D0 in the dictionary). The best code is out of reach, so f is what orthogonal matching
    pursuit finds, an upper bound. The moments are 1, err(y, D0) and |y|^2. Measured on 8 x 8 patches of photographs and
    of a cartoon: drawing by error instead of uniformly lowers the held-out error of the learned dictionary by 1 %
    (a texture) to 53 % (the cartoon); calibrating the weights, with groups by nearest atom or without, changes it by
    less than seeds do. `KSVD` therefore does not calibrate.

    A solution is atoms (k, d); a pilot may also be a point (d,) or subspaces (g, j, d).

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import DictionaryObjective
    >>> objective = DictionaryObjective(n_components=2, n_nonzero_coefs=1)
    >>> objective.cost(Block(X=np.array([[3.0, 1.0], [0.0, 2.0]])), np.eye(2)).round(6)
    array([1., 0.])
    """

    n_components: int = 64
    n_nonzero_coefs: int = 5
    reference: ReferenceKind | GivenAtoms = "constant"
    n_reference: int | None = None
    beta: float = 0.1
    include_reference: bool = False
    positive: bool = False
    max_iter: int = 40

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_components": WholeNumber(least=1),
        "n_nonzero_coefs": WholeNumber(least=1),
        **{option.parameter: option.constraint for option in REFERENCE_OPTIONS},
        "reference": REFERENCE_OPTIONS[0].constraint | Instance(GivenAtoms, "GivenAtoms"),
        "positive": Boolean(),
        "max_iter": WholeNumber(least=1),
    }
    options: ClassVar[tuple[Option, ...]] = (
        Option("n_components", constraints["n_components"], "Atoms.", flags=("-k", "--atoms")),
        Option("n_nonzero_coefs", constraints["n_nonzero_coefs"], "Atoms of a row."),
        *REFERENCE_OPTIONS,
    )
    name: ClassVar[str] = "dictionary"
    relative_rounding: ClassVar[float] = 1e-24
    takes_reference_factor: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_params(self, self.constraints)
        if self.beta == 0.0 and not self.include_reference:
            raise ValueError(
                "beta=0 needs include_reference=True, Reference(include=True): rows that the reference represents "
                "without error are never drawn, and a dictionary without it may have an error there. Or set beta to "
                "0.1."
            )
        if isinstance(self.reference, GivenAtoms):
            if self.n_reference is not None:
                raise ValueError("n_reference is the size of a Reference whose atoms are not given: leave it out.")
        elif self.n_reference not in (None, 1) and self.reference in _SINGLE_VECTORS:
            raise ValueError(
                f"n_reference={self.n_reference}, the size of a Reference: {self.reference!r} is one vector. Leave it "
                "out, or take 'singular', 'kmeans', 'ksvd' or 'projective'."
            )
        if self.include_reference and self.n_reference is None and self.reference in _MANY_ATOMS:
            raise ValueError(
                f"include_reference=True: the reference {self.reference!r} has as many vectors as the dictionary, "
                "which leaves no atom to learn. Set n_reference, the size of a Reference, to fewer."
            )
        if self.include_reference and self.positive and self.reference not in _SINGLE_VECTORS:
            raise ValueError(
                "positive=True: the reference may have negative entries, and cannot be included. Take 'constant' or "
                "'mean_line'."
            )

    # -- what a coreset needs ----------------------------------------------------------------

    def pilot(self, block: Block, *, rng: np.random.Generator) -> Array:
        """The reference D0: (1, d) a line, (d,) a point, (r, d) atoms, or (g, T, d) subspaces.

        Up to T singular vectors span one subspace; more are atoms.
        """
        _dense(block)
        d = block.n_features
        self.n_included(d)
        if isinstance(self.reference, GivenAtoms):
            if self.reference.atoms.shape[1] != d:
                raise ValueError(f"reference has {self.reference.atoms.shape[1]} columns, and the rows have {d}.")
            return self.reference.atoms
        if self.reference == "constant":
            return np.full((1, d), d**-0.5)
        if self.reference == "mean_point":
            return self.mean_pilot(block)
        if self.reference == "mean_line":
            line = unit(column_means(block)[None])
            return line if len(line) else np.full((1, d), d**-0.5)
        sample = sample_rows(_with_weight(block), max(_SAMPLE_ROWS, 20 * self.n_components), rng)
        X, max_nonzero = np.asarray(sample.X, np.float64), self._max_nonzero(d, self.n_components)
        with single_blas_thread():
            if self.reference == "singular":
                vectors = _top_directions(X, sample.weights(), min(d, self.n_reference or max_nonzero))
                return vectors[None] if len(vectors) <= max_nonzero else vectors
            if self.reference == "kmeans":
                means = KMeansObjective(n_clusters=self.n_reference or self.n_components, n_init=2)
                atoms = unit(means.solve(replace(sample, X=X), rng=rng))
                return atoms if len(atoms) else np.full((1, d), d**-0.5)
            if self.reference == "ksvd":
                start = data_atoms(X, self.n_reference or self.n_components, rng)
                coding = Coding(n_nonzero=min(max_nonzero, len(start)))
                return learn_dictionary(X, sample.sample_weight, start, coding, max_iter=1, rng=rng).atoms
            return _subspaces(X, sample.weights(), self._n_subspaces(max_nonzero), max_nonzero, rng)

    def reference_atoms(self, pilot: Array) -> Array:
        """The unit vectors (r, d) of a reference, which ``include_reference`` makes the first atoms.

        A point becomes the line through it, whose error is not larger; the zero point the constant signal.
        """
        if pilot.ndim > 1:
            return pilot.reshape(-1, pilot.shape[-1])
        line = unit(pilot[None])
        return line if len(line) else np.full((1, len(pilot)), len(pilot) ** -0.5)

    def with_reference(self, start: Array, block: Block, rng: np.random.Generator) -> Array:
        """The atoms to start from, with the vectors of the reference in front if they are to be included.

        They are those that a coreset was drawn by, or are found here.
        """
        count = self.n_included(block.n_features)
        if count == 0:
            return start
        known = block.pilot if isinstance(block, Coreset) else None
        atoms = None if known is None else self.reference_atoms(known)
        if atoms is None or len(atoms) != count:  # some constructions draw by another pilot
            atoms = self.reference_atoms(self.pilot(block, rng=rng))
        return np.concatenate([atoms, start[: len(start) - len(atoms)]])

    def mean_pilot(self, block: Block) -> Array:
        return column_means(block)

    def survey(self, block: Block, pilot: Array) -> Survey:
        error = self.cost(block, pilot)
        moments = (np.ones(len(block)), error, _energy(block))
        weights = block.sample_weight
        # not by BLAS, which adds in another order on two threads
        totals = np.array([[np.add.reduce(moment if weights is None else weights * moment) for moment in moments]])
        return Survey(cost=error, labels=None, totals=totals)

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        expect(1 <= pilot.ndim <= 3 and pilot.size > 0, "a reference is neither a point, atoms nor subspaces")
        Floats(*pilot.shape[:-1], block.n_features).check("pilot", pilot, {})
        if pilot.ndim > 1:
            bases = pilot if pilot.ndim == 3 else pilot[:, None]  # an atom spans a line
            products = np.einsum("gid,gjd->gij", bases, bases)
            unlike = np.abs(products - np.eye(bases.shape[1])).max(axis=(1, 2)) > _MAX_LENGTH_ERROR
            kind = "atom, whose length must be 1" if pilot.ndim == 2 else "subspace, whose vectors must be orthonormal"
            expect(not unlike.any(), f"number {int(unlike.argmax())} is no {kind}: divide it by its length")
        Optional(Floats(1, 3)).check("totals", totals, {})

    def sensitivity(self, block: Block, survey: Survey) -> Scores:
        weight, cost, _ = survey.totals[0]
        slope, base = ((1.0 - self.beta) / cost, self.beta / weight) if cost > _TINY else (0.0, 1.0 / weight)
        return Scores(cost=survey.cost, slope=slope, base=np.array([base]), weight=block.sample_weight)

    def moments(self, block: Block, pilot: Array) -> Moments:
        return Moments(values=np.stack([np.ones(len(block)), self.cost(block, pilot), _energy(block)], axis=1))

    def random_params(self, block: Block, *, n_bases: int, rng: np.random.Generator) -> list[Array]:
        """Dictionaries of rows, the same with noise, and random directions; with the reference if it is included."""
        _dense(block)
        block = _with_weight(block)
        queries = []
        for _ in range(n_bases):
            rows = data_atoms(block.X, self.n_components, rng, positive=self.positive)
            noise = rng.normal(size=rows.shape) * block.n_features**-0.5
            for atoms in (rows, rows + _QUERY_NOISE * noise, noise):
                atoms = unit(np.abs(atoms) if self.positive else atoms)
                queries.append(self.with_reference(atoms, block, rng))
        return queries

    # -- what a learner needs ----------------------------------------------------------------

    def null_params(self, n_features: int) -> Array:
        """The zero signal."""
        return np.zeros(n_features)

    def cost(self, block: Block, params: Array) -> Array:
        """Squared error of each row's code: (n,)."""
        return self._at(block, params)[1]

    def assign(self, block: Block, params: Array) -> Array:
        """The atom with the largest coefficient in the code of each row: (n,) int32."""
        return self._at(block, params)[0]

    def solve(self, block: Block, *, rng: np.random.Generator, init: Array | None = None) -> Array:
        """k atoms (k, d) by K-SVD, from ``init`` or from rows of the block; the best met.

        With ``include_reference`` the vectors of a reference come first, as in ``init``.
        """
        _dense(block)
        block = _with_weight(block)
        if init is None:
            start = data_atoms(block.X, self.n_components, rng, positive=self.positive)
            start = self.with_reference(start, block, rng)
        else:
            start = unit(init)
        coding = self._coding(block.n_features, len(start))
        return learn_dictionary(block.X, block.sample_weight, start, coding, max_iter=self.max_iter, rng=rng).atoms

    def size_theorem(self, question: SizeQuestion) -> SizeBound:
        """Feldman, Feigin and Sochen (2013), Lemma 1, Theorem 1 and Corollary 2: see `theoretical_size`."""
        reference_factor, delta = question.reference_factor, question.delta
        check_value("reference_factor", reference_factor, OneOf(None, "1/eps") | RealNumber(least=1.0))
        if self.beta == 1.0:
            raise ValueError("beta=1 draws rows uniformly, about which no theorem is known: use a smaller beta.")
        factor = 1.0 if reference_factor is None else reference_factor
        total = (1.0 / question.eps if isinstance(factor, str) else factor) / (1.0 - self.beta)
        about = "S = 1 / (eps (1 - beta)), " if isinstance(factor, str) else f"S = {factor:g} / (1 - beta), "
        assumption = "no row is coded with a larger error than by D0"
        if reference_factor is not None:
            share = "eps" if isinstance(factor, str) else f"1/{factor:g}"
            assumption += f", and the dictionary costs at least {share} of what D0 costs"
            if question.one:
                return by_bernstein(question, total, about, assumption)
        dimension = 1.0 if question.one else float(question.n_features * self.n_components)
        # Hoeffding's inequality needs ln(2/delta) / 2, which is more than 10 ln(1/delta) where delta is above 0.96
        log_chance = max(10.0 * math.log(1.0 / delta), math.log(2.0 / delta) / 2.0)
        error = "additive: eps cost(D0)" if reference_factor is None else "relative"
        queries = "one fixed query" if question.one else "all queries, pseudo-dimension taken as d k"
        return question.answer(
            dimension * total**2 * log_chance / question.eps**2,
            total,
            f"10 D S^2 ln(1/delta) / eps^2, {about}{error}, {queries}",
            constant=10.0,
            dimension=dimension,
            proved=question.one,
            assumption=assumption,
        )

    def _coding(self, d: int, k: int) -> Coding:
        n_reference = min(k, self.n_included(d))
        return Coding(n_nonzero=self._max_nonzero(d, k), positive=self.positive, n_reference=n_reference)

    def n_included(self, d: int) -> int:
        """The number of vectors of the reference that are atoms, of rows with d columns. Refuses too many."""
        if not self.include_reference:
            return 0
        if isinstance(self.reference, GivenAtoms):
            count = len(self.reference.atoms)
        elif self.reference in _SINGLE_VECTORS:
            count = 1
        elif self.reference in ("kmeans", "ksvd"):
            count = self.n_reference or self.n_components
        else:
            max_nonzero = self._max_nonzero(d, self.n_components)
            if self.reference == "singular":
                count = min(d, self.n_reference or max_nonzero)
            else:
                count = max_nonzero * self._n_subspaces(max_nonzero)
        if count > self.n_components:
            raise ValueError(
                f"include_reference=True keeps {count} vectors of the reference, more than n_components="
                f"{self.n_components}. Set n_reference, the size of a Reference, to fewer, or n_components to more."
            )
        return count

    def _n_subspaces(self, dimension: int) -> int:
        return self.n_reference or max(1, self.n_components // dimension)

    def _max_nonzero(self, d: int, k: int) -> int:
        return min(self.n_nonzero_coefs, d, k)

    def _at(self, block: Block, params: Array) -> tuple[Array, Array]:
        """Nearest atom or subspace and squared error of each row."""
        _dense(block)
        if params.ndim == 1:
            return np.zeros(len(block), np.int32), point_costs(block.X, params)[0]
        if params.ndim == 3 or len(params) == 1:
            return subspace_errors(block.X, params if params.ndim == 3 else params[None])
        chosen, _, error, _ = self._coding(block.n_features, len(params))(block.X, params)
        return np.maximum(chosen[:, 0], 0), error


def dictionary_distance(atoms: Any, others: Any) -> float:
    """How far the atoms (k, d) are from those of another dictionary (m, d), on average: from 0 to 1.

    The mean over the atoms d of the other dictionary of 1 - max |d . a| over the atoms a, all of unit length: 0 where
    each is found, up to its sign (Aharon, Elad and Bruckstein 2006). It is not symmetric: ``others`` are the true ones.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.dictionary import dictionary_distance
    >>> dictionary_distance(-np.eye(3), np.eye(3)[:2]), round(dictionary_distance([[1.0, 1.0]], np.eye(2)), 4)
    (0.0, 0.2929)
    """
    first, second = (check_array(rows, dtype=np.float64) for rows in (atoms, others))
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"Atoms of {first.shape[1]} and of {second.shape[1]} entries cannot be compared.")
    first, second = unit(first), unit(second)
    if not len(first) or not len(second):
        raise ValueError("A dictionary has no atom but zeros.")
    return float(np.maximum(0.0, 1.0 - np.abs(second @ first.T).max(axis=1)).mean())


def reference_factor(
    X: Any,
    objective: DictionaryObjective,
    *,
    sample_weight: Any = None,
    n_searches: int = 3,
    coreset_size: int = 5000,
    random_state: Any = None,
) -> float:
    """alpha of the reference D0 on these rows, which Theorem 1 needs: its cost over that of the best dictionary found.

    The best is that of several searches by K-SVD on a coreset; costs are of all rows, in one pass over them. The best
    of all dictionaries may cost less, and then alpha is larger: this is a lower estimate. `theoretical_size` takes it
    as ``reference_factor``.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.dictionary import reference_factor
    >>> from tithe.objectives import DictionaryObjective
    >>> from tithe.theory import theoretical_size
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 12)) + 0.5 * rng.normal(size=(500, 12))
    >>> objective = DictionaryObjective(n_components=16, n_nonzero_coefs=4, reference="singular", max_iter=5)
    >>> alpha = reference_factor(X, objective, random_state=0)
    >>> 1.0 < alpha < 5.0
    True
    >>> size = theoretical_size(objective, eps=0.1, n_features=12, reference_factor=alpha).size
    """
    check_value("n_searches", n_searches, WholeNumber(least=1))
    X, _, sample_weight = as_rows(X, None, sample_weight)
    rows = X if isinstance(X, Source) else as_block(X, None, sample_weight)
    seed = as_seed(random_state)
    options: dict[str, Any] = {"objective": objective, "coreset_size": coreset_size, "calibrate": False}
    coreset = build_coreset(X, sample_weight=sample_weight, random_state=seed, **options)
    pilot = coreset.pilot
    if pilot is None:  # all rows are in the coreset
        pilot = objective.pilot(coreset, rng=rng_for(seed, "pilot"))
    found = [objective.solve(coreset, rng=rng_for(seed, "search", i)) for i in range(n_searches)]

    def costs(block: Block) -> Array:
        return np.array([np.add.reduce(block.weights() * objective.cost(block, params)) for params in (pilot, *found)])

    rough, *best = DataPass(rows).total(costs)
    if min(best) <= objective.relative_rounding * max(rough, _TINY):
        raise ValueError("A dictionary was found that costs nothing: alpha is infinite. Corollary 2 is for that case.")
    return float(max(1.0, rough / min(best)))


def _dense(block: Block) -> None:
    if sparse.issparse(block.X):
        raise ValueError("Dictionary learning needs dense rows: X is sparse. Convert it with X.toarray() if it fits.")


def _with_weight(block: Block) -> Block:
    """The rows of positive weight: others must not become atoms."""
    weights = block.sample_weight
    return block if weights is None or weights.all() else block.take(np.flatnonzero(weights))


def _energy(block: Block) -> Array:
    return np.asarray(np.einsum("ij,ij->i", block.X, block.X, dtype=np.float64))


def _top_directions(X: Array, weight: Array, r: int) -> Array:
    """The r top right singular vectors of the weighted rows, (r, d); orthonormal also if the rows have a lower rank."""
    n, d = X.shape
    if d <= _MAX_SQUARE:
        second = (X * weight[:, None]).T @ X
        return np.ascontiguousarray(np.linalg.eigh(second)[1][:, ::-1][:, :r].T)
    rows = X * (np.sqrt(weight / weight.max()) / (np.abs(X).max() or 1.0))[:, None]
    vectors = None
    if r <= min(n, d) // _LANCZOS_SHARE:
        start = np.random.default_rng(0).normal(size=min(n, d))  # the same vectors whenever rows are the same
        with suppress(ArpackError):  # it has no way of going on from rows of too low a rank
            vectors = svds(rows, k=r, v0=start, return_singular_vectors="vh")[2][::-1]
    if vectors is None:
        vectors = np.linalg.svd(rows, full_matrices=False)[2][:r]
    if len(vectors) < r:
        others = np.random.default_rng(0).normal(size=(r - len(vectors), d))
        vectors = np.concatenate([vectors, np.linalg.qr(np.concatenate([vectors, others]).T)[0].T[len(vectors) :]])
    return np.ascontiguousarray(vectors)


def _subspaces(X: Array, weight: Array, g: int, j: int, rng: np.random.Generator) -> Array:
    """g subspaces of dimension j, by alternating assignment and singular vectors, the best of several starts."""
    n, d = X.shape
    if d > _MAX_SQUARE and j <= n < d:
        span, coordinates = np.linalg.qr(X.T)
        return np.asarray(_subspaces(np.ascontiguousarray(coordinates.T), weight, g, j, rng) @ span.T)
    best: Array | None = None
    least_error = np.inf
    for _ in range(_N_STARTS):
        bases = np.stack([np.linalg.qr(rng.normal(size=(X.shape[1], j)))[0].T for _ in range(g)])
        seeds = data_atoms(X, g, rng)
        for basis, seed in zip(bases, seeds, strict=True):
            basis[:] = np.linalg.qr(np.vstack([seed, basis[: j - 1]]).T)[0].T
        for _ in range(_N_ROUNDS):
            labels = subspace_errors(X, bases)[0]
            for c in range(g):
                members = labels == c
                if members.sum() >= j:
                    bases[c] = _top_directions(X[members], weight[members], j)
        total = float(np.add.reduce(weight * subspace_errors(X, bases)[1]))
        if best is None or total < least_error:
            best, least_error = bases, total
    assert best is not None
    return best
