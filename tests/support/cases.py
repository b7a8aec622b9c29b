"""Cases of a test that has many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(count: int, cases: Iterable[Any]) -> list[Any]:
    """The first cases for `make test`; the others are marked `long`."""
    return [case if number < count else pytest.param(case, marks=pytest.mark.long) for number, case in enumerate(cases)]
