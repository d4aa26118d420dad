"""Numbers in sentences and tables for people."""

from __future__ import annotations


def grouped(value: float, digits: int = 6) -> str:
    """A number with at least so many digits, those before the point in groups of three.

    >>> grouped(1234567.8), grouped(298690.64, 8), grouped(0.00123456789), grouped(999999.9)
    ('1,234,568', '298,690.64', '0.00123457', '1,000,000')
    """
    return f"{value:,.0f}" if 10.0**digits - 0.5 <= abs(value) < 1e15 else f"{value:,.{digits}g}"
