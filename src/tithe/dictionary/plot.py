"""Figures of dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.dictionary.pictures import atoms_picture
from tithe.plot.axes import axes_or_new

_MAX_ATOMS = 256


def atoms(model: Any, shape: tuple[int, int] | None = None, ax: Any = None) -> Any:
    """The atoms of a dictionary as small pictures side by side, smooth ones first, each scaled by its largest entry.

    Parameters
    ----------
    model : KSVD, ImageDenoiser, or array (n_atoms, d)
        With ``components_``. At most 256 atoms are shown.
    shape : (int, int), optional
        Height and width of an atom; by default it is square.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(300, 16))
    >>> ax = tithe.plot.atoms(tithe.dictionary.KSVD(9, random_state=0).fit(X))
    >>> ax.images[0].get_array().shape
    (68, 68)
    """
    rows = np.asarray(model if isinstance(model, np.ndarray) else model.components_, np.float64)[:_MAX_ATOMS]
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"Atoms are the rows of an array (n_atoms, d), got one of shape {rows.shape}.")
    ax = axes_or_new(ax, 5.0, 5.0)
    ax.imshow(atoms_picture(rows, shape), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    ax.set_axis_off()
    return ax
