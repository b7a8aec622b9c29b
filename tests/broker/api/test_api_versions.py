"""ApiVersions: the reply to a valid request is built once, in plain and in compiled code."""

from __future__ import annotations

import pytest

from broker.net.dispatch import Call
from protocol.messages.api_versions import ApiVersionsRequest
from tests.support.group_harness import GroupClient, GroupHarness


@pytest.mark.parametrize(("version", "request_"), [(0, ApiVersionsRequest()), (3, ApiVersionsRequest("librdkafka", "2.15.1"))])
def test_every_valid_request_gets_the_same_reply(version: int, request_: ApiVersionsRequest) -> None:
    harness = GroupHarness()
    route = harness.dispatch.routes[ApiVersionsRequest.API_KEY]
    call = Call(GroupClient(harness).connection, route, version, 7, request_, b"")
    assert route.handle(call, request_) is route.handle(call, request_)
