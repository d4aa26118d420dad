"""Dictionaries of atoms for sparse codes, and pictures cleaned with them."""

from typing import TYPE_CHECKING

from tithe.core.lazy import imported_names, lazy_names

if TYPE_CHECKING:
    from tithe.dictionary.denoiser import ImageDenoiser as ImageDenoiser
    from tithe.dictionary.ksvd import KSVD as KSVD
    from tithe.dictionary.objective import Reference as Reference
else:
    __getattr__, __dir__ = lazy_names(__name__, imported_names(__name__))
