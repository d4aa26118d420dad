"""Online clustering: rows are predicted one by one, and the number of clusters follows them."""

from tithe.learners.online.paco import PACO as PACO
