"""How many rows ``coreset_size="auto"`` keeps."""

from __future__ import annotations

MIN_AUTO_ROWS = 5000  # of a learner that has no rule of its own
_MIN_LINEAR_ROWS = 10_000
_LINEAR_ROWS_PER_COLUMN = 20
_LINEAR_SHARE = 100  # one row in 100 is kept ...
_MAX_LINEAR_SHARE_ROWS = 50_000  # ... up to this number


def linear_auto_size(n_rows: int | None, n_features: int) -> int:
    """Rows to keep for a linear model. The share of the rows is left out if ``n_rows`` is unknown."""
    share = min((n_rows or 0) // _LINEAR_SHARE, _MAX_LINEAR_SHARE_ROWS)
    return max(_MIN_LINEAR_ROWS, _LINEAR_ROWS_PER_COLUMN * (n_features + 1), share)
