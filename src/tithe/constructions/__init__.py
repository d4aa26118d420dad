"""Constructions, which choose rows, and the base class for your own."""

from tithe.clustering.private import private_coreset as private_coreset
from tithe.clustering.rings import Rings as Rings
from tithe.core.contracts import Construction as Construction
from tithe.linear.cablr import Acvs as Acvs
from tithe.linear.cablr import Cablr as Cablr
from tithe.linear.regressed import Regressed as Regressed
from tithe.meta.boosting import PilotGradient as PilotGradient
from tithe.reduce.ball_cover import BallCover as BallCover
from tithe.reduce.draws import Influence as Influence
from tithe.reduce.draws import Leverage as Leverage
from tithe.reduce.draws import Lightweight as Lightweight
from tithe.reduce.draws import Sensitivity as Sensitivity
from tithe.reduce.draws import Uniform as Uniform
