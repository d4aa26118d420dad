from __future__ import annotations

import numpy as np
import pytest

from tithe.odm import IncrementalODMClassifier
from tithe.report.unlearning import write_unlearning


def test_the_page_shows_the_certificate_and_no_row(tmp_path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = IncrementalODMClassifier(gamma=0.5).partial_fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="forgotten no rows"):
        write_unlearning(tmp_path / "page.html", model)
    assert "unlearning" not in model.summary()
    model.forget([4, 11])
    write_unlearning(tmp_path / "page.html", model)
    page = (tmp_path / "page.html").read_text()
    said = model.unlearning_
    assert "ids 4, 11 were forgotten" in page and f"{said.tolerance:.2e}" in page and f"{said.gap:.2e}" in page
    assert not any(repr(float(value)) in page for value in X.ravel())
    assert model.summary()["unlearning"] == str(said)
