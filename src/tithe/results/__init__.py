"""What public functions and methods return: comparisons, distortions, costs by the number of clusters, inference."""

from tithe.clustering.choose_k import KCurve as KCurve
from tithe.linear.inference import Inference as Inference
from tithe.linear.posterior import Posterior as Posterior
from tithe.reduce.distortion import Distortion as Distortion
from tithe.report.comparison import Comparison as Comparison
from tithe.report.comparison import Recommendation as Recommendation
