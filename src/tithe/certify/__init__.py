"""Certify a solution on all rows, and polish it in a few more passes."""

from tithe.certify.certificate import (
    Certificate,
    bound_certificate,
    certify_cost,
    coreset_cost,
    cost_certificate,
    total_cost,
)
from tithe.certify.gap import certify_bound, certify_gap
from tithe.certify.polish import polish_by_descent, polish_by_steps, polish_rounds

__all__ = [
    "Certificate",
    "bound_certificate",
    "certify_bound",
    "certify_cost",
    "certify_gap",
    "coreset_cost",
    "cost_certificate",
    "polish_by_descent",
    "polish_by_steps",
    "polish_rounds",
    "total_cost",
]
