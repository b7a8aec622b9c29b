"""Topics, produce and consume against Apache Kafka."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from cli.client import Cluster
from tests.cli.conftest import Tenure
from tests.cli.consumers import await_committed, await_members, consuming, member, stop
from tests.kafka_process import kafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with kafka(group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="4") as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def ask(client_command: Tenure) -> Tenure:
    return lambda *arguments, stdin="": client_command(*arguments, "--timeout", "30", stdin=stdin)


def test_topic_commands_work_against_kafka(client_command: Tenure) -> None:
    assert client_command("topic", "create", "life", "--partitions", "2", "--set", "retention.ms=86400000").out == (
        "life created: 2 partitions, replication factor 1, retention.ms=86400000\n"
    )
    assert client_command("topic", "create", "life").code == 1
    assert client_command("topic", "create", "lives", "--dry-run").out.startswith("lives would be created: 1 partition")
    assert client_command("topic", "alter", "life", "--partitions", "3", "--dry-run").out == "life would be changed:\n  partitions: 2 -> 3\n  new records with a key may go to other partitions; existing records stay\n"
    assert client_command("topic", "alter", "life", "--partitions", "3").code == 0
    assert "  cleanup.policy: delete -> compact\n" in client_command("topic", "config", "set", "life", "cleanup.policy=compact").out
    assert "  retention.ms: 86400000 -> its default\n" in client_command("topic", "config", "unset", "life", "retention.ms").out
    described = json.loads(client_command("topic", "describe", "life", "--json").out)["topics"][0]
    assert len(described["partitions"]) == 3
    assert [setting["name"] for setting in described["settings"] if setting["source"] == "topic"] == ["cleanup.policy"]
    refused = client_command("produce", "life", "--value", "no key")
    assert (refused.code, "Compacted topic cannot accept message without key" in refused.err) == (1, True), refused
    assert client_command("topic", "config", "set", "life", "retention.ms=soon").err.startswith("tenure: topic life: Invalid value soon")
    assert client_command("topic", "config", "set", "life", "x.y=1").err == "tenure: topic life: Unknown topic config name: x.y\n"
    assert client_command("produce", "life", "--key", "k", "--value", "v").code == 0
    assert client_command("consume", "life", "--group", "readers-of-life", "--from-beginning", "--no-follow").out == "v\n"
    expected = r"3 partitions, 1 record \(\d+ B\), offsets of group readers-of-life\n"
    assert re.fullmatch(f"life would be deleted: {expected}", client_command("topic", "delete", "life", "--dry-run").out)
    assert re.fullmatch(f"life deleted: {expected}", client_command("topic", "delete", "life").out)
    assert client_command("topic", "describe", "life").code == 66


def test_records_are_deleted_before_an_offset_with_kafka(client_command: Tenure) -> None:
    client_command("topic", "create", "cut", "--partitions", "2")
    for partition in ("0", "1"):
        assert client_command("produce", "cut", "--partition", partition, stdin="a\nb\nc\n").code == 0
    assert client_command("topic", "delete-records", "cut", "--before", "-1", "--dry-run").out.endswith("4 offsets of cut would be\n")
    assert client_command("topic", "delete-records", "cut", "--before", "2").out.endswith("deleted 4 offsets of cut\n")
    described = json.loads(client_command("topic", "describe", "cut*", "--json").out)["topics"][0]
    assert [partition["earliest"] for partition in described["partitions"]] == [2, 2]
    assert sorted(client_command("consume", "cut", "--from-beginning", "--until", "3").out.split()) == ["c", "c"]
    client_command("topic", "create", "kept", "--set", "cleanup.policy=compact")
    client_command("produce", "kept", "--key", "k", "--value", "v")
    refused = client_command("topic", "delete-records", "kept", "--before", "latest")
    assert (refused.code, "whose cleanup.policy has delete" in refused.err) == (1, True), refused
    names = [setting["name"] for setting in json.loads(client_command("topic", "config", "show", "kept", "--json").out)["settings"]]
    assert "retention.ms" in names


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_produced_and_consumed_with_kafka(client_command: Tenure, codec: str) -> None:
    name = f"codec-{codec}"
    client_command("topic", "create", name, "--partitions", "3")
    values = [f"value {n}" for n in range(5000)]
    sent = client_command("produce", name, "--compression", codec, stdin="\n".join(values))
    assert sent.code == 0, sent.err
    read = client_command("consume", name, "--from-beginning", "--no-follow")
    assert sorted(read.out.splitlines()) == sorted(values)
    partitions = json.loads(client_command("topic", "describe", name, "--json").out)["topics"][0]["partitions"]
    newest = client_command("consume", name, "--from", "-2", "--no-follow").out.splitlines()
    # Batches go to random partitions, so one may be empty.
    assert len(newest) == sum(min(2, partition["records"]) for partition in partitions) > 0


def test_a_too_large_batch_is_split_until_the_too_large_record(client_command: Tenure) -> None:
    client_command("topic", "create", "narrow", "--set", "max.message.bytes=500")
    assert client_command("produce", "narrow", stdin="".join(f"{n:0100}\n" for n in range(50))).out == "50 records written to narrow: partition 0, offsets 0 to 49\n"
    refused = client_command("produce", "narrow", stdin="short\n" + "x" * 600 + "\n")
    assert refused.err.startswith("tenure: line 2: 600 bytes are more than topic narrow accepts in one record")
    assert refused.err.endswith("1 record was written before; line 2 was not\n")


def test_members_share_a_group_on_kafka_and_a_duplicate_instance_fences_the_first(client_command: Tenure, bootstrap: str, cluster: Cluster) -> None:
    client_command("topic", "create", "shared", "--partitions", "4")
    arguments = ("shared", "--group", "sharers", "--from-beginning", "--json", "--heartbeat", "0.1", "--timeout", "30")
    with consuming(bootstrap, *arguments) as first, consuming(bootstrap, *arguments, "--instance", "desk") as second:
        await_members(cluster, "sharers", 2)
        assert client_command("produce", "shared", "--key-separator", ":", stdin="".join(f"{n}:v\n" for n in range(200))).code == 0
        await_committed(cluster, "sharers", "shared", 200)
        usurper = member(cluster, "sharers", "shared", instance_id="desk")
        with usurper._cluster:
            usurper.join()
            out, err = second.communicate(timeout=30)
            assert second.returncode == 1
            assert err == b"tenure: group sharers: another process has joined as instance desk and has its seat now; this one is fenced\n"
            usurper.leave()
        positions = stop(first, signal.SIGINT)
    await_members(cluster, "sharers", 0)
    positions += [(record["partition"], record["offset"]) for record in map(json.loads, out.splitlines()[:-1])]  # the last line says why it ended
    assert len(positions) == 200
    assert max(Counter(positions).values()) == 1
