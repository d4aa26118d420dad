"""Dictionaries of atoms for sparse codes, and pictures cleaned with them."""

from tithe.dictionary.denoiser import ImageDenoiser as ImageDenoiser
from tithe.dictionary.ksvd import KSVD as KSVD
from tithe.dictionary.objective import Reference as Reference
