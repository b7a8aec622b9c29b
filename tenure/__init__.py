"""The installed package: only the version. Start the broker as `tenure` or `python -m tenure`."""

__version__ = "0.1.0"
