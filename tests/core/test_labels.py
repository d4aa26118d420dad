from __future__ import annotations

import numpy as np
import pytest

from tithe.core.labels import distinct_labels, label_numbers

LABELS = {
    "texts": np.array(["b", "", "a", "\u00e9", "b", "A"], object),
    "fixed texts": np.array(["b", "", "a", "b"]),
    "half a character": np.array(["b", "\udc80", "b"], object),
    "bytes": np.array([b"b", b"a", b"b"], object),
    "whole numbers": np.array([3, -1, 3, 7]),
    "large numbers": np.array([2**60, -1, 2**60]),
    "objects": np.array([3, 1, 3], object),
    "fractions": np.array([0.5, -1.0, 0.5]),
    "truths": np.array([True, False, True]),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_any_kind_have_numbers(name: str) -> None:
    y = LABELS[name]
    labels = distinct_labels(y)
    codes = label_numbers(y, labels)
    expected, positions = np.unique(y, return_inverse=True)
    assert labels.dtype == expected.dtype and labels.tolist() == expected.tolist()
    assert codes.dtype == np.int32 and codes.tolist() == positions.tolist()
    known = label_numbers(y, labels[1:][::-1])  # in another order, and without the first
    assert [labels[1:][::-1][code] if code >= 0 else labels[0] for code in known] == y.tolist()


def test_texts_of_both_kinds_are_equal() -> None:
    y = np.array(["b", "c", "a"], object)
    assert label_numbers(y, np.array(["a", "b"])).tolist() == [1, -1, 0]
    assert label_numbers(y.astype(str), np.array(["a", "b"], object)).tolist() == [1, -1, 0]
    assert distinct_labels(np.array([], object)).tolist() == []


def test_labels_that_are_no_numbers_of_numpy_are_found() -> None:
    labels = np.array([3, 2**70], dtype=object)
    assert label_numbers(np.array([2**70, 3, 5], dtype=object), labels).tolist() == [1, 0, -1]
