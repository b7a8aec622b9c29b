"""Fixtures of the fast paths' tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.group_desk import Desk, Refusing


class Changeable(Refusing):
    """Allows everything until a test sets `open` to False."""

    open = True


@pytest.fixture
def desk() -> Desk:
    return Desk(Changeable((3, 3, "g"), (8, 3, "g")))


def handled_requests(desk: Desk, api_key: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests of this API that reach its handler from now on; fast paths answer the others."""
    called: list[Any] = []
    route = desk.dispatch.routes[api_key]
    handle = route.handle

    def recording(call: Any, request: Any) -> Any:
        called.append(request)
        return handle(call, request)

    monkeypatch.setattr(route, "handle", recording)
    return called
