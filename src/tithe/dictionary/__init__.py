"""Dictionaries of atoms for sparse codes, and pictures cleaned with them."""

from typing import TYPE_CHECKING

from tithe.core.lazy import imported_names, lazy_names

if TYPE_CHECKING:
    from tithe.dictionary.denoiser import ImageDenoiser as ImageDenoiser
    from tithe.dictionary.films import Film as Film
    from tithe.dictionary.ksvd import KSVD as KSVD
    from tithe.dictionary.objective import Reference as Reference
    from tithe.dictionary.scenes import KeyFrames as KeyFrames
    from tithe.dictionary.scenes import Scenes as Scenes
    from tithe.dictionary.scenes import Shot as Shot
    from tithe.dictionary.scenes import contact_sheet as contact_sheet
    from tithe.dictionary.scenes import find_scenes as find_scenes
    from tithe.dictionary.scenes import key_frames as key_frames
else:
    __getattr__, __dir__ = lazy_names(__name__, imported_names(__name__))
