"""What public functions return: comparisons, distortions, costs by the number of clusters."""

from tithe.clustering.choose_k import KCurve as KCurve
from tithe.reduce.distortion import Distortion as Distortion
from tithe.report.comparison import Comparison as Comparison
from tithe.report.comparison import Recommendation as Recommendation
