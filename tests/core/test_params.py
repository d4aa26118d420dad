"""Parameters as data."""

from types import SimpleNamespace

import numpy as np
import pytest

from tithe.core.params import Boolean, Instance, OneOf, RealNumber, WholeNumber, check_params


@pytest.mark.parametrize(
    ("constraint", "allowed", "refused", "words"),
    [
        (WholeNumber(least=1), [1, np.int64(3)], [0, True, 1.0, "1", None], "a whole number of at least 1"),
        (RealNumber(above=0.0), [1e-9, 3], [0.0, -1.0, np.inf, np.nan, True, "1"], "a positive number"),
        (RealNumber(above=0.0, finite=False), [1.0, np.inf], [0.0, -np.inf, np.nan], "a positive number or infinity"),
        (RealNumber(least=0.0, below=1.0), [0.0, 0.5], [1.0, -0.1], "a number of at least 0 and below 1"),
        (RealNumber(), [0.0, -5.0], [np.inf, -np.inf], "a finite number"),
        (Boolean(), [True, np.False_], [0, 1, "yes", None], "True or False"),
        (OneOf("a", None), ["a", None], ["b", 1, np.zeros(2)], "'a' or None"),
        (Instance(dict, "a dictionary"), [{}], [[], None], "a dictionary"),
        (OneOf("auto") | WholeNumber(), ["auto", 0], [-1, "other", 0.5], "'auto' or a whole number of at least 0"),
    ],
)
def test_what_is_allowed_and_how_it_is_said(constraint, allowed, refused, words) -> None:
    assert str(constraint) == words
    for value in allowed:
        check_params(SimpleNamespace(number=value), {"number": constraint})
    for value in refused:
        with pytest.raises(ValueError, match=f"number must be {words}, got"):
            check_params(SimpleNamespace(number=value), {"number": constraint})
