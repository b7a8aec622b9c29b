"""ApiVersions: the reply to a valid request is built once, in plain and in compiled code."""

from __future__ import annotations

import pytest

from broker.api.api_versions import ApiVersions, refuse
from broker.net.dispatch import Call, Route
from protocol.messages.api_versions import ApiVersionsRequest
from tests.support.group_desk import Desk, Peer


@pytest.mark.parametrize(("version", "request_"), [(0, ApiVersionsRequest()), (3, ApiVersionsRequest("librdkafka", "2.15.1"))])
def test_every_valid_request_gets_the_same_reply(version: int, request_: ApiVersionsRequest) -> None:
    handler = ApiVersions({})
    route = Route(ApiVersionsRequest, handler.handle, refuse)
    call = Call(Peer(Desk()).connection, route, version, 7, request_, b"", 0)
    assert handler.handle(call, request_) is handler.handle(call, request_)
