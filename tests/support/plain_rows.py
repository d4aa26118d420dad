"""Rows of tables as they stand in their files: numbers are not scaled, gaps not filled, text is refused."""

from functools import partial

import tithe.rows.columns
import tithe.rows.files

AS_THEY_ARE = {"scale": "none", "impute": "none", "categories": "error"}

open_dataset = partial(tithe.rows.files.open_dataset, **AS_THEY_ARE)
ColumnSelection = partial(tithe.rows.columns.ColumnSelection, **AS_THEY_ARE)
