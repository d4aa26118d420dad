"""Checks of the parameters of `ImageDenoiser`, and of one that was read from a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tithe.core.data import Coreset
from tithe.core.params import CORESET_SIZE, Boolean, Constraint, OneOf, RealNumber, WholeNumber, check_params
from tithe.core.state_checks import Flag, Floats, Instance, Number, Parts, Storable, check_fields, expect
from tithe.learners.dictionary.ksvd import KSVD
from tithe.learners.fitted import FLOATS

_MAX_SIGMA = 1e15  # the largest value of a pixel


class ImageChecks(Storable):
    """Refuses parameters and states that no fit could have."""

    sigma: float | None
    patch_size: int
    colours: str
    n_components: int
    n_nonzero_coefs: int
    learner_: KSVD
    _objective: Callable[[], Any]
    _n_patches: Callable[[], int | float | None]

    _constraints: ClassVar[dict[str, Constraint]] = {
        "sigma": OneOf(None) | RealNumber(least=0.0),
        "gain": RealNumber(above=0.0),
        "data_range": OneOf(None) | RealNumber(above=0.0),
        "patch_size": WholeNumber(least=2),
        "colours": OneOf("planes", "stacked"),
        "n_init": WholeNumber(least=1),
        "n_components": WholeNumber(least=1),
        "coreset_size": OneOf("auto", None) | CORESET_SIZE,
        "step": WholeNumber(least=1),
        "n_nonzero_coefs": WholeNumber(least=1),
        "max_iter": WholeNumber(least=1),
        "refine_iter": WholeNumber(),
        "clipped": OneOf("auto") | Boolean(),
    }

    def _check(self) -> None:
        check_params(self, self._constraints)
        self._objective()
        if self.sigma is not None and self.sigma > _MAX_SIGMA:
            raise ValueError(f"sigma={self.sigma:g} is more than {_MAX_SIGMA:g}: rescale the picture.")
        d = self.patch_size**2
        if self.n_nonzero_coefs > d:
            raise ValueError(
                f"n_nonzero_coefs={self.n_nonzero_coefs} is more than the {d} pixels of a patch: ask for fewer."
            )
        size = self._n_patches()
        if size is not None and 1 <= size < self.n_components:
            raise ValueError(
                f"coreset_size={size} patches are fewer than n_components={self.n_components} atoms: keep ten for each."
            )

    def _check_state(self) -> None:
        if not any(name in self.__dict__ for name in ("components_", "learner_", "sigma_", "clipped_", "coreset_")):
            return
        self._check()
        atoms = Floats(int(self.n_components), "d", dtypes=FLOATS)
        known = {"components_": atoms, "sigma_": Number(least=0.0), "clipped_": Parts(Flag(), Flag())}
        d = check_fields(self, known)["d"]
        pixels = int(self.patch_size) ** 2
        expect(d == pixels or (self.colours == "stacked" and d == 3 * pixels), "atoms have another size than patches")
        parts = {"learner_": Instance(KSVD), "seconds_": Instance(dict), "coreset_": Instance(Coreset)}
        check_fields(self, parts, optional=("coreset_",))
        expect(vars(self.learner_).get("n_features_in_") == d, "the learner has atoms of another size")
