"""Fixtures of the fast paths' tests."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import Authorizer
from tests.support.group_harness import GroupHarness, refusing


def changeable_authorizer(*refused: tuple[int, int, str | None]) -> Authorizer:
    """An authorizer that allows everything until a test sets `allows_all` to False; then it refuses `refused`."""
    authorizer = refusing(*refused)
    authorizer.allows_all = True
    return authorizer


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness(changeable_authorizer((3, 3, "g"), (8, 3, "g")))


def decoded_requests(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch, *api_keys: int) -> list[int]:
    """The API keys of the requests that are decoded from now on; fast paths answer the others."""
    decoded: list[int] = []

    def recording(key: int, decode: Any) -> Any:
        def record(*arguments: Any) -> Any:
            decoded.append(key)
            return decode(*arguments)

        return record

    for key in api_keys:
        route = harness.dispatch.routes[key]
        monkeypatch.setattr(route, "decode", recording(key, route.decode))
    return decoded
