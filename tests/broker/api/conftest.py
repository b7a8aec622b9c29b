"""A node that serves groups, and a client of it."""

from __future__ import annotations

import pytest

from tests.support.group_desk import Desk, Peer


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return Peer(desk)
