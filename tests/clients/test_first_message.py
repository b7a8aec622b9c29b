"""The quick test of a Python client: it subscribes, consumes and commits. `make clients-test` has all others, also of Java clients."""

from __future__ import annotations

import pytest

from tests.clients.members import KINDS, ClientKind
from tests.clients.membership import Group

pytestmark = pytest.mark.once


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.clients] if str(kind) == "java" else []) for kind in KINDS], ids=str)
def test_a_client_subscribes_consumes_and_commits(kind: ClientKind, group: Group) -> None:
    group.feed.send_some(30)
    group.start(kind, "seat")
    group.await_consumed()
    assert (group.lost(), group.seen_twice()) == (set(), set())
