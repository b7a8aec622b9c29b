"""A partition of the offsets topic, whose log and time the test controls."""

from __future__ import annotations

import pytest

from tests.support.group_logs import GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()
