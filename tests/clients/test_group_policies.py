"""Group policies, set and read with Kafka's own tools and with the admin clients of confluent-kafka and kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KafkaConfigResource
from kafka.admin import ConfigResourceType

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.clients.java_tools import Tools
from tests.running import Broker, Client, broker

pytestmark = pytest.mark.clients

GROUP_RESOURCE = 32
TIMEOUT = "registration.timeout.ms"


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with broker("--profile", "test") as ours:
        yield ours


def described(port: int, group: str, *names: str) -> dict[str, str]:
    with Client(port) as client:
        reply = client.ask(DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group, list(names))]), 4)
    return {config.name: config.value for config in reply.results[0].configs}


def test_kafka_configs_sets_describes_and_deletes_policies(served: Broker, tools: Tools, tmp_path: Path) -> None:
    def configs(*arguments: str | Path, code: int = 0) -> str:
        printed = tools.run("kafka-configs", "--bootstrap-server", f"127.0.0.1:{served.port}", "--entity-type", "groups", *arguments)
        assert printed.code == code, printed
        return printed.out + printed.err

    configs("--entity-name", "tools", "--alter", "--add-config", f"{TIMEOUT}=60000,instance.ids=[a,b,c-1]")
    of_group = "DYNAMIC_GROUP_CONFIG"
    for lines in (configs("--entity-name", "tools", "--describe"), configs("--describe")):
        assert "Dynamic configs for group tools are:" in lines
        assert f"{TIMEOUT}=60000 sensitive=false synonyms={{{of_group}:{TIMEOUT}=60000}}" in lines
        assert "instance.ids=a,b,c-1 " in lines
    assert "consumer.session.timeout.ms=45000" in configs("--entity-name", "tools", "--describe", "--all")
    # The tool removes brackets from values on the command line; a file keeps them.
    ranges = tmp_path / "ranges.properties"
    ranges.write_text("instance.ids=worker-[01-03]\n")
    configs("--entity-name", "ranges", "--alter", "--add-config-file", ranges)
    assert described(served.port, "ranges", "instance.ids") == {"instance.ids": "worker-[01-03]"}
    refused = configs("--entity-name", "tools", "--alter", "--add-config", f"{TIMEOUT}=5", code=1)
    assert "InvalidConfigurationException" in refused
    assert "write milliseconds from 1000" in refused
    session = "consumer.session.timeout.ms"
    configs("--entity-name", "tools", "--alter", "--add-config", f"{session}=50000")
    assert described(served.port, "tools", session) == {session: "50000"}
    others = configs("--entity-name", "tools", "--alter", "--add-config", "share.session.timeout.ms=50000", code=1)
    assert "not served here" in others
    configs("--entity-name", "tools", "--alter", "--delete-config", f"{TIMEOUT},instance.ids,{session}")
    assert described(served.port, "tools", TIMEOUT, "instance.ids", session) == {session: "45000"}


def test_librdkafkas_administrator_sets_and_describes_policies(served: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{served.port}"})
    entry = ConfigEntry(TIMEOUT, "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "librdkafka", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
    (future,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, "librdkafka")]).values()
    configs: dict[str, Any] = future.result(10)
    assert (configs[TIMEOUT].value, configs[TIMEOUT].is_read_only) == ("60000", False)


def test_kafka_pythons_administrator_sets_and_describes_policies(served: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{served.port}")
    try:
        admin.alter_configs([KafkaConfigResource(ConfigResourceType.GROUP, "kafka-python", {TIMEOUT: "60000"})], raise_on_unknown=False)
        assert described(served.port, "kafka-python", TIMEOUT) == {TIMEOUT: "60000"}
    finally:
        admin.close()
