"""The running build of Tenure: compiled by mypyc, or plain Python."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec


def compiled() -> bool:
    """Judged by one module: all of them are compiled together."""
    found = find_spec("broker.net.connection")
    return found is not None and (found.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def build() -> str:
    return f"{'compiled' if compiled() else 'plain'}, Python {sys.version.split()[0]}"
