"""Constructions, which choose rows, and the base class for your own."""

from tithe.constructions.ball_cover import BallCover as BallCover
from tithe.constructions.cablr import Acvs as Acvs
from tithe.constructions.cablr import Cablr as Cablr
from tithe.constructions.draw import Lightweight as Lightweight
from tithe.constructions.draw import Sensitivity as Sensitivity
from tithe.constructions.draw import Uniform as Uniform
from tithe.constructions.leverage import Influence as Influence
from tithe.constructions.leverage import Leverage as Leverage
from tithe.constructions.regressed import Regressed as Regressed
from tithe.constructions.rings import Rings as Rings
from tithe.core.contracts import Construction as Construction
