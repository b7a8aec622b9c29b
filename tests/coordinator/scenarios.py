"""The conformance catalogue: numbered scenarios of Kafka's group protocol. A test is marked with its numbers; test_catalogue.py reads the marks.

    @scenario("SR-01")                                     a test of its own
    @pytest.mark.parametrize("x, y", [row("FE-01", 1, 2)])  a row of a table; the number is the row's name

Write the numbers as plain strings: test_catalogue.py searches the source. A test named ..._z1 to ..._z17 shows a deliberate difference from Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any])


def scenario(*numbers: str) -> Callable[[T], T]:
    """The test below covers these rows of the catalogue."""

    def numbered(test: T) -> T:
        test.scenarios = numbers  # type: ignore[attr-defined]
        return test

    return numbered


def row(number: str, *values: object) -> Any:
    """One row of a parametrised test. A number may occur in several rows."""
    return pytest.param(*values, id=f"{number} {' '.join(getattr(value, '__name__', str(value)) for value in values)}"[:60])
