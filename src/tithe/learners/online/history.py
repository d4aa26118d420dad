"""The history of a stream, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.state_checks import Floats, Integer, Number, Storable, check_fields, expect

MAX_ENTRIES = 65_536


class History(Storable):
    """Number of centres, loss and acceptance of each row; from 65,536 rows on, of each 2, 4, 8, ... rows together.

    An entry of several rows has the number of centres and the cumulative loss at the last row, and means of the rest.
    """

    def __init__(self) -> None:
        self.stride = 1
        self.n_rows = self.n_entries = 0
        self.total = 0.0  # loss so far
        self.entries = np.zeros((4, 64))  # centres, loss, cumulative loss, acceptance
        self.waiting = np.empty((4, 0))  # rows of an entry that is not complete yet

    def _check_state(self) -> None:
        sizes = check_fields(
            self,
            {
                "stride": Integer(least=1, most=2**50),
                "n_rows": Integer(),
                "n_entries": Integer(most=MAX_ENTRIES - 1),
                "total": Number(least=0.0),
                "entries": Floats(4, "room", any_value=True),
                "waiting": Floats(4, "waiting"),
            },
        )
        room = sizes["room"]
        expect(1 <= room <= 2 * MAX_ENTRIES and self.n_entries <= room, "a history is longer than its memory")
        whole = self.stride & (self.stride - 1) == 0 and sizes["waiting"] < self.stride
        expect(whole and self.n_rows == self.n_entries * self.stride + sizes["waiting"], "a history has lost rows")
        expect(np.isfinite(self.entries[:, : self.n_entries]).all(), "a history holds values that are not finite")

    def add(self, n_centers: Array, losses: Array, acceptance: Array) -> None:
        """Add rows in their order. The entries do not depend on how rows are split into batches."""
        cumulative = np.concatenate([[self.total], losses]).cumsum()[1:]  # a running sum from the left
        self.n_rows, self.total = self.n_rows + len(losses), float(cumulative[-1])
        rows = np.concatenate([self.waiting, [n_centers, losses, cumulative, acceptance]], axis=1)
        while rows.shape[1] >= self.stride:
            n = self.stride * min(rows.shape[1] // self.stride, MAX_ENTRIES - self.n_entries)
            self._append(_joined(rows[:, :n], self.stride))
            rows = rows[:, n:]
        self.waiting = rows.copy()

    def _append(self, entries: Array) -> None:
        n = self.n_entries + entries.shape[1]
        while self.entries.shape[1] < n:
            self.entries = np.concatenate([self.entries, np.zeros_like(self.entries)], axis=1)
        self.entries[:, self.n_entries : n] = entries
        self.n_entries = n
        if n == MAX_ENTRIES:
            self.n_entries, self.stride = n // 2, 2 * self.stride
            self.entries[:, : n // 2] = _joined(self.entries[:, :n], 2)

    def as_dict(self) -> dict[str, Any]:
        """Arrays by name. ``row`` is the number of rows at the end of an entry."""
        entries = self.entries[:, : self.n_entries]
        if self.waiting.shape[1]:
            entries = np.concatenate([entries, _joined(self.waiting, self.waiting.shape[1])], axis=1)
        rows = np.minimum(np.arange(1, entries.shape[1] + 1) * self.stride, self.n_rows)
        return {
            "row": rows,
            "k": entries[0].astype(np.int64),
            "loss": entries[1].copy(),
            "cumulative_loss": entries[2].copy(),
            "acceptance": entries[3].copy(),
        }


def _joined(rows: Array, stride: int) -> Array:
    if stride == 1 or rows.shape[1] == 0:
        return rows
    groups = rows.reshape(len(rows), -1, stride)
    last, mean = groups[:, :, -1], groups.mean(axis=2)
    return np.stack([last[0], mean[1], last[2], mean[3]])
