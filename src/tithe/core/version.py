"""The version, which files that are written say."""

__version__ = "0.1.0"
