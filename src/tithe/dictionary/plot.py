"""Figures of dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.dictionary.pictures import atoms_picture
from tithe.plot.axes import axes_or_new

_MAX_ATOMS = 256


def atoms(model: Any, ax: Any = None) -> Any:
    """The atoms of a dictionary of square patches as small pictures side by side, smooth ones first; grey is zero.

    Parameters
    ----------
    model : KSVD, ImageDenoiser, or array (n_atoms, d)
        With ``components_``. At most 256 atoms are shown.
    ax : Axes, optional
        Those of a new figure if left out.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(300, 16))
    >>> ax = tithe.plot.atoms(tithe.dictionary.KSVD(9, random_state=0).fit(X))
    >>> len(ax.images)
    1
    """
    rows = np.asarray(model if isinstance(model, np.ndarray) else model.components_, np.float64)[:_MAX_ATOMS]
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"Atoms are the rows of an array (n_atoms, d), got one of shape {rows.shape}.")
    ax = axes_or_new(ax, 5.0, 5.0)
    ax.imshow(atoms_picture(rows), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    ax.set_axis_off()
    return ax
