"""What tithe computes on small fixed data, by public names only; see ``__main__.py`` for the commands."""

from __future__ import annotations

from importlib import import_module

GROUPS = ("coresets", "streams", "sources", "linear", "clusters", "margins", "signals", "commands")


def every_item() -> None:
    """Fill the table."""
    for group in GROUPS:
        import_module(f"fingerprints.{group}")
