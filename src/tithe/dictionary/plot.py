"""Figures of dictionaries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tithe.plot.axes import axes_or_new

_MAX_ATOMS = 256


def atoms(model: Any, shape: tuple[int, int] | None = None, ax: Any = None) -> Any:
    """The atoms of a dictionary as small pictures side by side, each scaled to the whole range of greys.

    Parameters
    ----------
    model : KSVD, ImageDenoiser, or array (n_atoms, d)
        With ``components_``. At most 256 atoms are shown.
    shape : (int, int), optional
        Height and width of an atom; by default it is square.
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
    >>> ax.images[0].get_array().shape
    (16, 16)
    """
    rows = np.asarray(model if isinstance(model, np.ndarray) else model.components_, np.float64)[:_MAX_ATOMS]
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"Atoms are the rows of an array (n_atoms, d), got one of shape {rows.shape}.")
    side = math.isqrt(rows.shape[1])
    height, width = shape if shape is not None else (side, side)
    if height * width != rows.shape[1]:
        raise ValueError(f"Atoms have {rows.shape[1]} values, not {height} x {width}: give their shape.")
    columns = math.ceil(math.sqrt(len(rows)))
    lines = math.ceil(len(rows) / columns)
    picture = np.ones((lines * (height + 1) + 1, columns * (width + 1) + 1))
    for i, atom in enumerate(rows):
        top, left = 1 + (i // columns) * (height + 1), 1 + (i % columns) * (width + 1)
        low, high = atom.min(), atom.max()
        scaled = (atom - low) / (high - low) if high > low else np.full_like(atom, 0.5)
        picture[top : top + height, left : left + width] = scaled.reshape(height, width)
    ax = axes_or_new(ax, 5.0, 5.0)
    ax.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    ax.set_axis_off()
    return ax
