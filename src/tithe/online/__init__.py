"""Online clustering: rows are predicted one by one, and the number of clusters follows them."""

from tithe.online.paco import PACO as PACO
