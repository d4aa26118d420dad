"""Dictionaries of atoms for sparse codes, and pictures cleaned with them."""

from tithe.learners.dictionary.ksvd import KSVD as KSVD
from tithe.learners.images import ImageDenoiser as ImageDenoiser
