from __future__ import annotations

import numpy as np
import pytest
from figures import check_figure

import tithe


def test_atoms() -> None:
    check_figure(tithe.plot.atoms, np.random.default_rng(0).normal(size=(10, 16)))
    with pytest.raises(ValueError, match="no square"):
        tithe.plot.atoms(np.ones((3, 15)))
    with pytest.raises(ValueError, match="shape"):
        tithe.plot.atoms(np.ones((3, 15)), shape=(4, 4))
    assert tithe.plot.atoms(np.ones((4, 15)), shape=(3, 5)).images[0].get_array().shape == (36, 56)
    with pytest.raises(ValueError, match="n_atoms"):
        tithe.plot.atoms(np.empty((0, 16)))
    assert "KSVD" in tithe.dictionary.KSVD()._repr_html_()
