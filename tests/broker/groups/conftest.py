"""A partition of the offsets topic, its log and time moved by the test."""

from __future__ import annotations

import pytest

from tests.support.group_logs import GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()
