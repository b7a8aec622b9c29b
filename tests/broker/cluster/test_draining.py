"""Draining nodes with requests of Kafka: IncrementalAlterConfigs and DescribeConfigs of a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.broker.cluster.test_nodes import Nodes

pytestmark = [pytest.mark.asyncio, pytest.mark.once]

BROKER = 4
SET, DELETE, APPEND = 0, 1, 2
DYNAMIC_BROKER, DEFAULT = 2, 5


@pytest_asyncio.fixture
async def two(tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(tmp_path / "data")
    await nodes.start(1, 2, cluster_nodes=2)
    yield nodes
    await nodes.stop(*nodes.served)


async def alter(nodes: Nodes, through: int, name: str, value: str | None, operation: int = SET, setting: str = "node.drained", validate: bool = False) -> Any:
    resource = AlterConfigsResource(BROKER, name, [AlterableConfig(setting, operation, value)])
    (response,) = (await nodes.clients[through].ask(IncrementalAlterConfigsRequest([resource], validate), 1)).responses
    return response


async def described(nodes: Nodes, id: int) -> tuple[str, int, bool]:
    """The value of `node.drained`, its source, and whether it is read-only."""
    reply = await nodes.clients[id].ask(DescribeConfigsRequest([DescribeConfigsResource(BROKER, str(id), ["node.drained"])]), 4)
    (config,) = reply.results[0].configs
    return config.value, config.config_source, config.read_only


def draining(nodes: Nodes) -> list[set[int]]:
    return [nodes.broker(id).cluster.members.draining for id in sorted(nodes.served)]


@pytest.mark.parametrize("through", [1, 2])
@pytest.mark.parametrize("undrain", [("false", SET), (None, DELETE)])
async def test_a_node_is_drained_and_undrained_through_any_node(two: Nodes, through: int, undrain: tuple[str | None, int]) -> None:
    assert await described(two, 2) == ("false", DEFAULT, False)
    assert (await alter(two, through, "2", " True")).error_code == 0
    assert await described(two, 2) == ("true", DYNAMIC_BROKER, False)
    assert await described(two, 1) == ("false", DEFAULT, False)
    await two.until(lambda: draining(two) == [{2}, {2}])
    await two.until(lambda: not two.broker(2).cluster.ownership.owned())
    assert (await alter(two, through, "2", *undrain)).error_code == 0
    await two.until(lambda: draining(two) == [set(), set()])
    await two.until(lambda: bool(two.broker(2).cluster.ownership.owned()))


@pytest.mark.parametrize("through", [1, 2])
async def test_only_a_live_node_is_drained(two: Nodes, through: int) -> None:
    for name in ("3", "999999", "02", "two", ""):
        response = await alter(two, through, name, "true")
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "resource names none" in response.error_message if not name else f"Node {name} is not live" in response.error_message
    two.broker(1).cluster.members.drain(7, True)  # another node never says so of a node that does not exist
    assert draining(two) == [set(), set()]


@pytest.mark.parametrize(
    ("value", "operation", "setting", "error"),
    [
        ("yes", SET, "node.drained", ErrorCode.INVALID_CONFIG),
        ("true", APPEND, "node.drained", ErrorCode.INVALID_CONFIG),
        ("true", 9, "node.drained", ErrorCode.INVALID_REQUEST),
        (None, SET, "node.drained", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_an_invalid_change_drains_nothing(two: Nodes, value: str | None, operation: int, setting: str, error: ErrorCode) -> None:
    for through in (1, 2):
        assert (await alter(two, through, "2", value, operation, setting)).error_code == error
    assert draining(two) == [set(), set()]


async def test_other_settings_of_a_node_stay_fixed(two: Nodes) -> None:
    assert (await alter(two, 1, "1", "9", setting="num.partitions")).error_code == ErrorCode.INVALID_REQUEST
    configs = [AlterableConfig("node.drained", SET, "true"), AlterableConfig("num.partitions", SET, "9")]
    reply = await two.clients[1].ask(IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "1", configs)]), 1)
    assert reply.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert draining(two) == [set(), set()]


async def test_a_change_that_is_only_validated_has_no_effect(two: Nodes) -> None:
    for through in (1, 2):
        assert (await alter(two, through, "2", "true", validate=True)).error_code == 0
        assert (await alter(two, through, "2", "no", validate=True)).error_code == ErrorCode.INVALID_CONFIG
        assert (await alter(two, through, "5", "true", validate=True)).error_code == ErrorCode.INVALID_REQUEST
    assert draining(two) == [set(), set()]
