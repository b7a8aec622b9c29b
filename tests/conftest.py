"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def log_lines_on_standard_output() -> Iterator[None]:
    """A test that runs the command in this process sends the log elsewhere; the next one looks for its lines where they are by default."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
