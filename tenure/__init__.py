"""Tenure, installed: the version, and nothing else. What serves starts as `tenure` or `python -m tenure`."""

__version__ = "0.1.0"
