"""Certify a solution on all rows, and polish it in a few more passes."""

from tithe.certify.certificate import Certificate as Certificate
from tithe.certify.certificate import bound_certificate as bound_certificate
from tithe.certify.cost import certify_cost as certify_cost
from tithe.certify.cost import coreset_cost as coreset_cost
from tithe.certify.cost import cost_certificate as cost_certificate
from tithe.certify.cost import likelihood_certificate as likelihood_certificate
from tithe.certify.cost import polish_by_steps as polish_by_steps
from tithe.certify.cost import polish_rounds as polish_rounds
from tithe.certify.cost import total_cost as total_cost
from tithe.certify.gap import certify_bound as certify_bound
from tithe.certify.gap import certify_gap as certify_gap
from tithe.certify.polish import polish_by_descent as polish_by_descent
