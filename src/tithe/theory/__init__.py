"""Sizes of coresets by the formulas of theorems, and the errors that they give for a size."""

from tithe.reduce.theorems import SizeBound as SizeBound
from tithe.reduce.theory import eps_for as eps_for
from tithe.reduce.theory import measured_total_sensitivity as measured_total_sensitivity
from tithe.reduce.theory import rows_of_equal_weight as rows_of_equal_weight
from tithe.reduce.theory import theoretical_size as theoretical_size
