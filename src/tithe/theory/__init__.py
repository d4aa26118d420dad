"""Sizes of coresets by the formulas of theorems, and the errors that they give for a size; sizes for sites."""

from tithe.reduce.merge import site_sizes as site_sizes
from tithe.theory.sizes import eps_for as eps_for
from tithe.theory.sizes import measured_total_sensitivity as measured_total_sensitivity
from tithe.theory.sizes import rows_of_equal_weight as rows_of_equal_weight
from tithe.theory.sizes import theoretical_size as theoretical_size
from tithe.theory.theorems import SizeBound as SizeBound
