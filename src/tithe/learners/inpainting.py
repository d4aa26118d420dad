"""Missing pixels filled in by a learned dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array
from tithe.images.inpaint import check_mask, filled
from tithe.images.patches import PatchSource


class InpaintingMixin:
    """The methods of `ImageDenoiser` for pictures with missing pixels."""

    components_: Array
    sigma_: float
    patch_size: int
    colours: str
    n_nonzero_coefs: int
    gain: float
    fit: Callable[..., Self]

    def inpaint(self, image: Any, mask: Any) -> Array:
        """The picture with its missing pixels filled in: of the same shape and type, with the known pixels unchanged.

        Patches are coded by their known pixels, with at most ``n_nonzero_coefs`` atoms, and averaged. Large holes are
        filled from their edges inwards.

        Parameters
        ----------
        image : array (h, w) or (h, w, 3)
            Missing pixels may hold anything.
        mask : array (h, w) of bool
            True where a pixel is missing.
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
        side = self.patch_size
        return filled(image, known, atoms.astype(np.float32), side, self.n_nonzero_coefs, (self.gain * sigma) ** 2)
