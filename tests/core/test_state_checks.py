"""Checks of what was read from a file, by the types that attributes are declared with."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tithe.clustering.learners import CoresetKMeans
from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.core.state_checks import Storable, check_of
from tithe.fit.base import FittedAttribute, StoredEstimator

BLOCK = Block(X=np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (float, 1.5, "1.5"),
        (int, 3, 3.5),
        (bool, True, 1),
        (Array, np.zeros(2), [0.0, 0.0]),
        (Block, BLOCK, {}),
        (Block | None, None, 0),
        (list[float], [1.0, 2.0], [1.0, None]),
        (tuple[int, float], (1, 0.5), (1, 0.5, 2)),
        (dict[str, Any], {"a": 1}, [1]),
    ],
)
def test_a_type_says_what_a_value_must_be(kind: Any, right: Any, wrong: Any) -> None:
    check_of(kind).check("value", right, {})
    with pytest.raises(FileFormatError, match="value"):
        check_of(kind).check("value", wrong, {})


class Counting(CoresetKMeans):
    """A learner with one more attribute, declared by its type alone."""

    n_pairs_ = FittedAttribute[int]()


@pytest.mark.parametrize(("value", "fault"), [(None, "n_pairs_ is None"), ("missing", "has no n_pairs_")])
def test_an_attribute_of_a_new_learner_is_checked_without_another_line(value: Any, fault: str) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = Counting(2, random_state=0).fit(X)
    model.n_pairs_ = 7
    Counting.from_record(model.record())
    if value == "missing":
        del model.n_pairs_
    else:
        model.n_pairs_ = value
    with pytest.raises(FileFormatError, match=fault):
        Counting.from_record(model.record())


def test_an_attribute_that_is_not_declared_is_not_lost_without_a_word() -> None:
    model = CoresetKMeans(2, random_state=0).fit(np.eye(9))
    model.remarks_ = "kept nowhere"
    with pytest.raises(ValueError, match="remarks_"):
        model.record()


def test_no_class_declares_a_stored_attribute_again_without_its_check() -> None:
    """The annotation of a subclass hides that of its base, and the value would be lost."""
    for package in ("odm", "online", "dictionary", "clustering", "linear", "meta", "fit"):
        for module in pkgutil.walk_packages(import_module(f"tithe.{package}").__path__, f"tithe.{package}."):
            for cls in vars(import_module(module.name)).values():
                if isinstance(cls, type) and issubclass(cls, StoredEstimator):
                    declared = {
                        name for base in cls.__mro__[1:] if issubclass(base, Storable) for name in base.stored_checks()
                    }
                    assert declared <= set(cls.stored_checks()), cls


def test_whole_numbers_that_no_array_holds_are_refused() -> None:
    check = check_of(float)
    check.check("a number", 2**62, {})
    with pytest.raises(FileFormatError, match="not a number in range"):
        check.check("a number", 2**70, {})
