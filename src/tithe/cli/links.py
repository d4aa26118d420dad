"""Links between rows, from a file."""

from __future__ import annotations

import csv
from typing import Any

_KINDS = {"must": "must", "must-link": "must", "1": "must", "cannot": "cannot", "cannot-link": "cannot", "-1": "cannot"}
Links = list[tuple[int, int]]


def read_links(path: str | None) -> tuple[Links, Links]:
    """Pairs that must be together and pairs that must not, from lines such as ``3,17,must`` or ``3,17,cannot``."""
    links: dict[str, Links] = {"must": [], "cannot": []}
    if path is None:
        return links["must"], links["cannot"]
    with open(path, newline="", encoding="utf8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            cells = [cell.strip() for cell in row]
            if not any(cells) or (number == 1 and not cells[0].lstrip("-").isdigit()):
                continue  # an empty line, or the names of the columns
            kind = _KINDS.get(cells[2].lower()) if len(cells) == 3 else None
            if kind is None or not all(cell.lstrip("-").isdigit() for cell in cells[:2]):
                raise ValueError(
                    f"Line {number} of {path!r} is not a link: write two row numbers, from 0 on, and must or cannot, "
                    "such as 3,17,must."
                )
            links[kind].append((int(cells[0]), int(cells[1])))
    return links["must"], links["cannot"]


def links_among(links: Links, row_ids: Any) -> Links | None:
    """The links as positions among the rows with these ids, which ascend; None if there are no links."""
    import numpy as np

    if not links:
        return None
    n_rows = int(row_ids[-1]) + 1
    pairs = np.array(links)
    if len(row_ids) < n_rows:  # some rows were left out
        at = np.minimum(np.searchsorted(row_ids, pairs), len(row_ids) - 1)
        lost = pairs[(row_ids[at] != pairs) & (pairs >= 0) & (pairs < n_rows)]
        if len(lost):
            raise ValueError(f"A link names row {lost[0]}, which was left out as a bad row. Remove the link.")
        pairs = np.where((pairs >= 0) & (pairs < n_rows), at, pairs)
    return [(int(i), int(j)) for i, j in pairs]
