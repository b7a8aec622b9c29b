"""The running build of Tenure: compiled by mypyc, or plain Python."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec


def compiled() -> bool:
    """Whether this build is compiled. One module shows it, since all are compiled together."""
    spec = find_spec("broker.net.connection")
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def build() -> str:
    return f"{'compiled' if compiled() else 'plain'}, Python {sys.version.split()[0]}"
