"""One image for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.docker import daemon


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The image, built from this checkout; removed at the end."""
    if daemon.why_no_docker():
        pytest.skip(daemon.why_no_docker())
    name = f"tenure-test-{uuid4().hex[:12]}"
    daemon.build(name)
    yield name
    daemon.remove(name)
