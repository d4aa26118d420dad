"""Online clustering: rows are predicted one by one, and the number of clusters follows them."""

from typing import TYPE_CHECKING

from tithe.core.lazy import lazy_names

if TYPE_CHECKING:
    from tithe.online.paco import PACO as PACO
else:
    __getattr__, __dir__ = lazy_names(__name__, {"PACO": "tithe.online.paco"})
