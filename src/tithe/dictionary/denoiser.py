"""Pictures cleaned with a dictionary of their own patches."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate
from tithe.core.data import Array, Coreset, all_rows, concat
from tithe.core.params import (
    CORESET_SIZE,
    Boolean,
    Constraint,
    OneOf,
    RealNumber,
    WholeNumber,
    check_params,
    check_value,
)
from tithe.core.progress import Progress, timed
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Flag, Floats, Instance, Number, Parts, Sometimes, expect
from tithe.dictionary.compression import EncodedPicture, encode_picture
from tithe.dictionary.ksvd import KSVD
from tithe.dictionary.noise import ClippedNoise, data_range, estimate_sigma, find_clipping
from tithe.dictionary.objective import DictionaryObjective
from tithe.dictionary.patches import Coder, PatchSource, averaged, check_mask, filled
from tithe.dictionary.pictures import Planes, as_pixels
from tithe.dictionary.solver import cosine_atoms, stacked_cosines
from tithe.fit.base import FLOATS, StoredEstimator
from tithe.fit.bases import BaseEstimator
from tithe.reduce.plan import build_coreset

_AUTO_PATCHES = 10_000
_REFINE_PATCHES = 50_000  # patches that atoms are refined on
_MAX_CUT_PATCHES = 1_000_000  # patches that are cut to find them
_PIXEL_WEIGHT = 30.0  # lambda times sigma, for pixels up to 255
_MAX_SIGMA = 1e15  # the largest value of a pixel


@dataclass(eq=False, repr=False)
class ImageDenoiser(StoredEstimator, BaseEstimator):
    """Denoising by sparse codes of all overlapping patches, in atoms learned from a coreset of the patches.

    The model: a picture y (h, w) or (h, w, 3) is white noise of standard deviation sigma added to a picture whose
    patches are sums of few atoms D (k, d), d = patch_size^2. The atoms are learned by K-SVD from a weighted coreset of
    the picture's own patches (Feldman, Feigin and Sochen 2013). Then atoms are added to the code a_i of each patch
    R_i y until its squared error is d (gain sigma)^2, and the patches are averaged (Elad and Aharon 2006):

        x = (lambda y + sum_i R_i' (m_i + a_i D)) / (lambda + count),    lambda = 30 / sigma (pixels to 255),

    with m_i the mean of the patch, which is subtracted before coding, and count the number of patches that cover a
    pixel. Colours are transformed into three planes by an orthonormal matrix (`Planes`), which share the dictionary, or
    are one patch. Patches are cut stripe by stripe and are never all in memory.

    The estimator takes a picture, not the rows of a table. ``get_params``, ``set_params`` and ``clone`` work as usual.

    Parameters
    ----------
    sigma : float, optional
        Standard deviation of the noise, in the units of the pixels; by default it is estimated (`estimate_sigma`).
        With 0, there is no noise, and each patch is coded with ``n_nonzero_coefs`` atoms.
    patch_size : int
        Side of a patch in pixels.
    colours : {"planes", "stacked"}
        "stacked": the three colours of a place are one patch, d = 3 patch_size^2, so that an atom has colours. For
        `denoise` and `reconstruct`, not for `inpaint`.
    n_components : int
        k, the number of atoms.
    coreset_size : int, float, "auto" or None
        Patches to learn from, or a share of them. ``"auto"``: 10,000. None: all, in memory together.
    gain : float
        A larger gain smooths more.
    step : int
        Pixels between the patches that are coded. 2 codes a quarter of the patches, and costs 0.2 to 1 decibel.
    n_nonzero_coefs : int
        Atoms of a patch if ``sigma`` is 0, and in `reconstruct` and `inpaint`.
    max_iter : int
        Iterations of K-SVD on the coreset.
    refine_iter : int
        Further iterations on some 50,000 patches, drawn uniformly: the more patches an atom is learned from, the less
        noise it contains.
    construction, engine
        See `build_coreset`. Patches are drawn by their energy, as the mean of each is subtracted first.
    variant
        See `KSVD`.
    data_range : float, optional
        The value of a white pixel. By default 255 or 65535 for integers, by their type, and 1 for floats.
    clipped : bool or "auto"
        Whether noise was cut off at black and white, as it is when a noisy picture is saved. Its mean is then not 0
        there, which is corrected (`ClippedNoise`). "auto" decides by the values of integer pixels.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : array (k, d)
        The atoms.
    sigma_ : float
        The noise that was given or estimated in `fit`.
    clipped_ : tuple of two bools
        Whether it was cut off at black and at white.
    coreset_ : Coreset
        The patches that were learned from. A model that was saved without rows has none.
    learner_ : KSVD
        The K-SVD that learned the atoms.
    n_atoms_mean_ : float
        Mean number of atoms of a patch in the picture that was denoised last.
    seconds_ : dict
        Time of each phase of the last `fit` and `denoise`.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.dictionary import ImageDenoiser
    >>> rng = np.random.default_rng(0)
    >>> clean = np.kron(rng.uniform(50, 200, size=(6, 6)), np.ones((12, 12)))
    >>> noisy = clean + 20 * rng.normal(size=clean.shape)
    >>> denoised = ImageDenoiser(sigma=20, n_components=64, random_state=0).fit_denoise(noisy)
    >>> bool(np.std(denoised - clean) < 0.5 * np.std(noisy - clean))
    True
    """

    sigma: float | None = None
    _: KW_ONLY
    patch_size: int = 8
    colours: str = "planes"
    n_components: int = 256
    coreset_size: int | float | str | None = "auto"
    gain: float = 1.15
    step: int = 1
    n_nonzero_coefs: int = 5
    max_iter: int = 15
    refine_iter: int = 10
    construction: Any = "auto"
    variant: str = "accelerated"
    data_range: float | None = None
    clipped: bool | str = "auto"
    engine: Any = "auto"
    random_state: Any = None

    components_: Annotated[Array, Floats("k", "d", dtypes=FLOATS)] = field(init=False)
    sigma_: Annotated[float, Number(least=0.0)] = field(init=False)
    clipped_: Annotated[tuple[bool, bool], Parts(Flag(), Flag())] = field(init=False)
    coreset_: Annotated[Coreset, Sometimes(Instance(Coreset))] = field(init=False)
    learner_: Annotated[KSVD, Instance(KSVD)] = field(init=False)
    n_atoms_mean_: Annotated[float, Sometimes(Number())] = field(init=False)
    seconds_: Annotated[dict[str, float], Instance(dict)] = field(init=False)

    _constraints: ClassVar[dict[str, Constraint]] = {
        "sigma": OneOf(None) | RealNumber(least=0.0),
        "gain": RealNumber(above=0.0),
        "data_range": OneOf(None) | RealNumber(above=0.0),
        "patch_size": WholeNumber(least=2),
        "colours": OneOf("planes", "stacked"),
        "n_components": WholeNumber(least=1),
        "coreset_size": OneOf("auto", None) | CORESET_SIZE,
        "step": WholeNumber(least=1),
        "n_nonzero_coefs": WholeNumber(least=1),
        "max_iter": WholeNumber(least=1),
        "refine_iter": WholeNumber(),
        "clipped": OneOf("auto") | Boolean(),
    }

    # -- learning ------------------------------------------------------------------------------

    def fit(self, image: Any, y: Any = None, *, mask: Any = None, progress: Progress | None = None) -> Self:
        """Learn the atoms from the patches of a picture (h, w) or (h, w, 3) of uint8, uint16 or floats.

        ``mask`` (h, w) of bool is True where a pixel is missing. Missing pixels are first filled in by cosines, so that
        all patches can be learned from. The noise is then not estimated: without a ``sigma`` it is taken to be 0.
        ``progress`` is called as ``progress(1, n_leaves, n_patches)`` while patches are reduced.
        """
        self._check()
        if mask is not None:
            image = self._filled_in(image, mask, cosine_atoms(self.n_components, self.patch_size**2), self.sigma or 0.0)
        planes = Planes(image)
        source = self._source(planes)
        if self.n_components > (source.n_rows or 0):
            raise ValueError(
                f"n_components={self.n_components} atoms cannot be learned from the {source.n_rows} patches of this "
                "picture: ask for fewer."
            )
        self.seconds_ = {}
        with timed(self.seconds_, "noise"):
            estimated = self.sigma is None and mask is None
            self.sigma_ = estimate_sigma(planes) if estimated else float(self.sigma or 0.0)
            clipping = None if mask is not None else find_clipping(planes, self.sigma_, self.clipped, self.data_range)
            self.clipped_ = (False, False) if clipping is None else (clipping.black, clipping.white)
        seed = as_seed(self.random_state)
        with timed(self.seconds_, "reducing"):
            source = self._patches(planes, clipping, rng_for(seed, "look"))
            self.coreset_ = self._reduce(source, seed, progress)
        with timed(self.seconds_, "learning"):
            self.learner_ = self._learner(seed, source.n_features)
            self.learner_.fit_drawn(self.coreset_)
            patches = self._refine_patches(source, rng_for(seed, "polish"))
            if patches is not None:
                self.learner_.refine(patches, n_iter=self.refine_iter)
        self.components_ = self.learner_.components_
        return self

    def _patches(self, planes: Planes, clipping: ClippedNoise | None, rng: np.random.Generator) -> PatchSource:
        """The patches to learn from, without those that noise alone explains: their codes have no atoms."""
        every = self._source(planes, clipping=clipping)
        above = self._target(every.n_features) if self.sigma_ > 0.0 else 0.0
        source = self._source(planes, above=above, clipping=clipping)
        return source if len(source.sample(None, rng=rng)) >= self.n_components else every

    def _source(self, image: Any, **options: Any) -> PatchSource:
        return PatchSource(image, patch_size=self.patch_size, stacked=self.colours == "stacked", **options)

    def _reduce(self, source: PatchSource, seed: int, progress: Progress | None) -> Coreset:
        objective = DictionaryObjective(n_components=self.n_components, n_nonzero_coefs=self.n_nonzero_coefs)
        if self.coreset_size is None:
            return all_rows(concat([task() for task in source.tasks()]), objective)
        return build_coreset(
            source,
            objective=objective,
            construction=self.construction,
            coreset_size=_AUTO_PATCHES if isinstance(self.coreset_size, str) else self.coreset_size,
            calibrate=False,  # as in KSVD
            engine=self.engine,
            random_state=int(rng_for(seed, "reduce").integers(2**62)),
            progress=progress,
        )

    def _refine_patches(self, source: PatchSource, rng: np.random.Generator) -> Array | None:
        """Patches to refine the atoms on; None if all were learned from, or ``refine_iter`` is 0."""
        n_seen, size = self.coreset_.n_seen, len(self.coreset_)
        if self.refine_iter == 0 or size >= min(n_seen, _REFINE_PATCHES):
            return None
        share = n_seen / int(source.n_rows or 1)  # the source cuts the other patches as well, and leaves them out
        rows: Array = source.sample(min(_MAX_CUT_PATCHES, int(_REFINE_PATCHES / share)), rng=rng).X
        return rows if len(rows) > size else None

    def _learner(self, seed: int, d: int) -> KSVD:
        noisy, is_stacked = self.sigma_ > 0.0, d > self.patch_size**2
        return KSVD(
            self.n_components,
            n_nonzero_coefs=self._max_atoms(d) if noisy else min(self.n_nonzero_coefs, self.n_components),
            tol=self._target(d) if noisy else None,
            max_iter=self.max_iter,
            initial=stacked_cosines(self.n_components, self.patch_size) if is_stacked else "dct",
            variant=self.variant,
            random_state=int(rng_for(seed, "learn").integers(2**62)),
        )

    # -- methods of a fitted dictionary --------------------------------------------------------

    def denoise(self, image: Any, *, progress: Progress | None = None) -> Array:
        """The picture without its noise, of the same shape and type.

        ``progress`` is called as ``progress(2, n_stripes, n_patches)``.
        """
        check_is_fitted(self)
        planes = Planes(image)
        if self.sigma_ == 0.0:
            return planes.image.copy()
        scale = (data_range(planes.image) if self.data_range is None else float(self.data_range)) / 255.0
        d = self.components_.shape[1]
        return self._recoded(
            planes, self._max_atoms(d), self._target(d), _PIXEL_WEIGHT * scale / self.sigma_, progress,
            find_clipping(planes, self.sigma_, self.clipped, self.data_range),
        )  # fmt: skip

    def fit_denoise(self, image: Any, y: Any = None, *, progress: Progress | None = None) -> Array:
        """`fit` and `denoise` of one picture."""
        return self.fit(image, progress=progress).denoise(image, progress=progress)

    def reconstruct(self, image: Any) -> Array:
        """The picture coded with ``n_nonzero_coefs`` atoms per patch, in the same shape and type."""
        check_is_fitted(self)
        return self._recoded(Planes(image), min(self.n_nonzero_coefs, self.n_components), 0.0, 0.0)

    def encode(self, image: Any, *, step: float = 16.0) -> EncodedPicture:
        """The quantised codes of patches side by side, and the dictionary: `EncodedPicture.to_bytes` packs them.

        ``step`` is that of the coefficients, in the units of the pixels: a smaller one gives a better picture in more
        bytes. Atoms are added to a patch until its mean squared error is below 0.16 ``step``^2, at most half as many as
        it has pixels.
        """
        check_is_fitted(self)
        check_value("step", step, RealNumber(above=0.0))
        if self.colours == "stacked":
            raise ValueError("Pictures are compressed plane by plane: set colours='planes'.")
        d = self.components_.shape[1]
        return encode_picture(image, self.components_, self.patch_size, step=step, max_atoms=self._max_atoms(d))

    def decode(self, encoded: EncodedPicture) -> Array:
        """The picture that `encode` was given, as its codes represent it. It needs no fit: the atoms are in there."""
        return encoded.decode()

    def inpaint(self, image: Any, mask: Any) -> Array:
        """The picture with its missing pixels filled in: of the same shape and type, with the known pixels unchanged.

        Patches are coded by their known pixels, with at most ``n_nonzero_coefs`` atoms, and averaged. Large holes are
        filled from their edges inwards. ``mask`` (h, w) of bool is True where a pixel is missing; it may hold anything.
        """
        check_is_fitted(self)
        return self._filled_in(image, mask, self.components_, self.sigma_)

    def fit_inpaint(self, image: Any, mask: Any) -> Array:
        """`fit` and `inpaint` of one picture."""
        return self.fit(image, mask=mask).inpaint(image, mask)

    def _filled_in(self, image: Any, mask: Any, atoms: Array, sigma: float) -> Array:
        if self.colours == "stacked":
            raise ValueError("Missing pixels are filled in plane by plane: set colours='planes'.")
        image, known = check_mask(image, mask)
        PatchSource(image, patch_size=self.patch_size)  # checks picture and size
        atoms, allowed = atoms.astype(np.float32), (self.gain * sigma) ** 2
        return filled(image, known, atoms, self.patch_size, self.n_nonzero_coefs, allowed)

    def certify(self, image: Any) -> Certificate:
        """Mean squared error of a pixel over all patches of a picture, coded by this dictionary."""
        check_is_fitted(self)
        return self.learner_.certify(self._same_size(self._source(image)))

    def _same_size(self, source: PatchSource) -> PatchSource:
        d = self.components_.shape[1]
        if source.n_features != d:
            raise ValueError(
                f"The atoms have {d} entries and the patches of this picture {source.n_features}: stacked "
                "colours need pictures in colour, as in the fit."
            )
        return source

    def _recoded(
        self,
        planes: Planes,
        max_atoms: int,
        target: float,
        pixel_weight: float,
        progress: Progress | None = None,
        clipping: ClippedNoise | None = None,
    ) -> Array:
        """The average of the coded patches, with the picture itself at ``pixel_weight``."""
        source = self._same_size(self._source(planes, step=self.step, clipping=clipping))
        coder = Coder(self.components_, max_atoms, target)
        result = np.empty_like(planes.image)
        with timed(self.seconds_, "coding"):
            for top, change in averaged(source, coder, pixel_weight, progress=progress):
                values = planes.changed(top, change)
                if clipping is not None:
                    values = clipping.undone(values)
                result[top : top + change.shape[1]] = as_pixels(values, result.dtype)
        self.n_atoms_mean_ = coder.n_atoms / coder.n_patches
        return result

    def _max_atoms(self, d: int) -> int:
        """Maximum number of atoms of a patch: half its entries, since longer codes fit the noise."""
        return max(1, min(d // 2, self.n_components))

    def _target(self, d: int) -> float:
        return float(d * (self.gain * self.sigma_) ** 2)

    def without_rows(self) -> Self:
        """A copy without the patches that were learned from."""
        slim = copy(self)
        with suppress(AttributeError):  # not fitted, or saved without them
            del slim.coreset_
        return slim

    # -- checks --------------------------------------------------------------------------------

    def _check(self) -> None:
        check_params(self, self._constraints)
        if self.sigma is not None and self.sigma > _MAX_SIGMA:
            raise ValueError(f"sigma={self.sigma:g} is more than {_MAX_SIGMA:g}: rescale the picture.")
        d = self.patch_size**2
        if self.n_nonzero_coefs > d:
            raise ValueError(
                f"n_nonzero_coefs={self.n_nonzero_coefs} is more than the {d} pixels of a patch: ask for fewer."
            )
        size = _AUTO_PATCHES if self.coreset_size == "auto" else self.coreset_size
        if isinstance(size, int | float) and 1 <= size < self.n_components:
            raise ValueError(
                f"coreset_size={size} patches are fewer than n_components={self.n_components} atoms: keep ten for each."
            )

    def check_relations(self) -> None:
        self._check()
        (k, d), pixels = self.components_.shape, int(self.patch_size) ** 2
        expect(k == self.n_components, "there are more or fewer atoms than asked for")
        expect(d == pixels or (self.colours == "stacked" and d == 3 * pixels), "atoms have another size than patches")
        expect(self.learner_.n_encoded_ == d, "a dictionary is of other patches")
