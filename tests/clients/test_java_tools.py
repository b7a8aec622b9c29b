"""Kafka's own command line tools with this broker. Each test checks the output of a tool, and in `make kafka-test`
runs against Apache Kafka too. Tests for only one of the two servers are at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.admin import Admin
from tests.clients.java_tools import CLASSES, CommandResult, Tools
from tests.kafka_process import kafka
from tests.oracle import run_java
from tests.running import broker

pytestmark = pytest.mark.clients

Run = Callable[..., CommandResult]
SESSION_MS = 6_000  # the shortest that both allow by default


class Served(NamedTuple):
    name: str
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture(scope="module", params=["tenure", pytest.param("kafka", marks=pytest.mark.kafka)])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with ExitStack() as started:
        if request.param == "kafka":
            yield Served("kafka", started.enter_context(kafka(group_initial_rebalance_delay_ms="0", auto_create_topics_enable="false")))
        else:
            yield Served("tenure", started.enter_context(broker("--profile", "test", "--set", "auto.create.topics.enable=false")).port)


@pytest.fixture
def run(tools: Tools, served: Served) -> Run:
    def run(script: str, *arguments: str | int | Path, stdin: str = "", code: int = 0) -> CommandResult:
        printed = tools.run(script, "--bootstrap-server", served.address, *arguments, stdin=stdin)
        assert printed.code == code, printed
        return printed

    return run


@pytest.fixture
def groups(run: Run) -> Run:
    return lambda *arguments, **more: run("kafka-consumer-groups", *arguments, **more)


@pytest.fixture
def topic(request: pytest.FixtureRequest, served: Served) -> str:
    """A topic for this test only: partition 0 has offsets 0 to 9, partition 1 has 4 to 9, partition 2 is empty."""
    name = f"topic-{abs(hash(request.node.nodeid)) % 1_000_000_000}"
    with Admin(served.port) as admin:
        admin.create_topic(name)
    return name


@pytest.fixture
def admin(served: Served) -> Iterator[Admin]:
    with Admin(served.port) as opened:
        yield opened


def wait_until(attempt: Callable[[], bool]) -> None:
    """Retry while a state spreads through the cluster."""
    end = time.monotonic() + 20
    while not attempt():
        assert time.monotonic() < end
        time.sleep(0.1)


# Topics and their settings


def test_kafka_topics_makes_shows_grows_and_deletes(run: Run) -> None:
    def topics(*arguments: str | int, code: int = 0) -> CommandResult:
        return run("kafka-topics", *arguments, code=code)

    assert topics("--create", "--topic", "made", "--partitions", 2, "--config", "retention.ms=1000000").out == "Created topic made.\n"
    assert "already exists" in topics("--create", "--topic", "made", code=1).out
    assert topics("--create", "--topic", "made", "--if-not-exists").out == ""
    assert ["made"] in topics("--list").rows
    described = topics("--describe", "--topic", "made").out.splitlines()
    assert described[0].startswith("Topic: made\tTopicId: ")
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: " in described[0]
    assert "retention.ms=1000000" in described[0]
    assert [line.split() for line in described[1:]] == [
        ["Topic:", "made", "Partition:", str(partition), "Leader:", "1", "Replicas:", "1", "Isr:", "1", "Elr:", "LastKnownElr:"] for partition in (0, 1)
    ]
    assert topics("--describe", "--under-replicated-partitions").out == ""
    assert topics("--describe", "--unavailable-partitions").out == ""
    assert "Topic: made" in topics("--describe", "--topics-with-overrides").out
    topics("--alter", "--topic", "made", "--partitions", 4)
    wait_until(lambda: "PartitionCount: 4" in topics("--describe", "--topic", "made").out)
    assert "would not be an increase" in topics("--alter", "--topic", "made", "--partitions", 3, code=1).out
    topics("--delete", "--topic", "made")
    wait_until(lambda: ["made"] not in topics("--list").rows)
    assert "does not exist" in topics("--describe", "--topic", "made", code=1).out
    assert "does not exist" in topics("--delete", "--topic", "made", code=1).out
    topics("--delete", "--topic", "made", "--if-exists")


def test_kafka_configs_sets_shows_and_unsets(run: Run, topic: str) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    assert run("kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=100000,cleanup.policy=[compact,delete]").out.startswith("Completed")

    def described() -> str:
        return run("kafka-configs", "--describe", *of_topic).out

    wait_until(lambda: "retention.ms=100000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=100000" in described())
    assert "cleanup.policy=compact,delete sensitive=false" in described()
    run("kafka-configs", "--alter", *of_topic, "--delete-config", "retention.ms")
    wait_until(lambda: "retention.ms=" not in described())
    every = run("kafka-configs", "--describe", *of_topic, "--all").out
    assert "  segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}" in every
    refused = run("kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=soon", code=1)
    assert "InvalidConfigurationException: Invalid value soon for configuration retention.ms: Not a number of type LONG" in refused.err
    assert "Unknown topic config name: no.such" in run("kafka-configs", "--alter", *of_topic, "--add-config", "no.such=1", code=1).err
    of_broker = run("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", 1, "--all").out
    assert of_broker.startswith("All configs for broker 1 are:\n")
    assert "  group.max.session.timeout.ms=1800000 sensitive=false" in of_broker


# Records


def test_the_console_producer_and_consumer_pass_records_on(run: Run, topic: str) -> None:
    properties = [word for name in ("parse.key=true", "key.separator=:", "parse.headers=true") for word in ("--reader-property", name)]
    run("kafka-console-producer", "--topic", topic, *properties, "--compression-codec", "zstd", stdin="h:1\tanna:a\nh:2\tbert:b\n")
    print_options = [word for name in ("key", "headers", "partition", "offset") for word in ("--formatter-property", f"print.{name}=true")]
    consumed = run("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 18, *print_options)
    lines = [line.split("\t") for line in consumed.out.splitlines()]
    assert [line[2:] for line in sorted(lines) if line[2] != "NO_HEADERS"] in ([["h:1", "anna", "a"], ["h:2", "bert", "b"]], [["h:2", "bert", "b"], ["h:1", "anna", "a"]])
    assert "Processed a total of 18 messages" in consumed.err
    assert run("kafka-console-consumer", "--topic", topic, "--partition", 1, "--offset", 7, "--max-messages", 3).out == "7\n8\n9\n"


def test_a_group_of_console_consumers_continues_at_its_offsets(run: Run, groups: Run, topic: str) -> None:
    group = f"console-{topic}"
    first = run("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", 16)
    assert sorted(first.out.split(), key=int) == sorted([str(n) for n in range(10)] + [str(n) for n in range(4, 10)], key=int)
    run("kafka-console-producer", "--topic", topic, stdin="one more\n")
    assert run("kafka-console-consumer", "--topic", topic, "--group", group, "--max-messages", 1).out == "one more\n"
    assert sum(int(row[5]) for row in groups("--describe", "--group", group).rows[1:] if row[0] == group) == 0


def test_a_static_console_consumer_stays_in_its_seat_when_it_ends(run: Run, groups: Run, topic: str) -> None:
    group = f"static-{topic}"
    static = ["--command-property", "group.instance.id=seat-1", "--command-property", f"session.timeout.ms={SESSION_MS * 5}"]
    members = []
    for _ in range(2):
        run("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", 3000, *static)
        header, member = groups("--describe", "--group", group, "--members", "--verbose").rows
        assert header[:7] == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH"]
        members.append(member)
        assert member[0:1] + member[2:7] + member[7:8] == [group, "seat-1", "/127.0.0.1", "console-consumer", "3", "-", f"{topic}:0,1,2"]
    assert members[0][1] != members[1][1]  # a new process has the instance id, with a new member id
    state = groups("--describe", "--group", group, "--state").rows[1]
    assert (state[0], state[-2:]) == (group, ["Stable", "1"])


def test_the_verifiable_clients_report_every_record(run: Run, topic: str, served: Served) -> None:
    # In a separate JVM, as the producer sends its last records when its JVM ends.
    sent = run_java(CLASSES["kafka-verifiable-producer"], "--bootstrap-server", served.address, "--topic", topic, "--max-messages", "20", "--acks", "-1")
    events = [json.loads(line) for line in sent.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 20
    assert (events[-1]["name"], events[-1]["sent"], events[-1]["acked"]) == ("tool_data", 20, 20)
    for more in ((), ("--group-instance-id", "seat-1")):
        consumer = ("kafka-verifiable-consumer", "--topic", topic, "--group-id", f"verified-{topic}{len(more)}", "--reset-policy", "earliest")
        consumer_events = [json.loads(line) for line in run(*consumer, "--max-messages", 36, *more).out.splitlines()]
        names = [event["name"] for event in consumer_events]
        assert names[:2] == ["startup_complete", "partitions_assigned"]
        assert "shutdown_complete" in names
        assert sum(part["count"] for event in consumer_events if event["name"] == "records_consumed" for part in event["partitions"]) == 36
        assert all(event["success"] for event in consumer_events if event["name"] == "offsets_committed")


def test_the_perf_tests_end(run: Run, topic: str) -> None:
    sent = run("kafka-producer-perf-test", "--topic", topic, "--num-records", 5000, "--record-size", 100, "--throughput", -1)
    assert sent.out.splitlines()[-1].startswith("5000 records sent")
    lines = run("kafka-consumer-perf-test", "--topic", topic, "--num-records", 5000, "--group", f"perf-{topic}").out.splitlines()
    assert int(lines[-1].split(",")[4]) >= 5000


# Groups


def test_groups_are_listed_with_state_and_type(run: Run, groups: Run, topic: str, admin: Admin) -> None:
    admin.commit(f"empty-{topic}", {(topic, 0): 3})
    admin.join(f"live-{topic}", topic)
    assert {f"empty-{topic}", f"live-{topic}"} <= {row[0] for row in groups("--list").rows}
    states = {row[0]: row[1] for row in groups("--list", "--state").rows}
    assert (states[f"empty-{topic}"], states[f"live-{topic}"]) == ("Empty", "Stable")
    stable = {row[0] for row in groups("--list", "--state", "Stable").rows}
    assert (f"live-{topic}" in stable, f"empty-{topic}" in stable) == (True, False)
    assert [f"live-{topic}", "Classic"] in groups("--list", "--type", "classic").rows
    assert f"live-{topic}" not in groups("--list", "--type", "consumer").out
    assert [f"live-{topic}", "Classic", "consumer"] in run("kafka-groups", "--list").rows
    assert f"live-{topic}" in run("kafka-groups", "--list", "--consumer").out
    assert f"live-{topic}" not in run("kafka-groups", "--list", "--share").out


def test_a_group_is_described_in_every_way(groups: Run, topic: str, admin: Admin, served: Served) -> None:
    group = f"shown-{topic}"
    admin.commit(group, {(topic, 0): 3, (topic, 1): 9}, epoch=0)
    idle = groups("--describe", "--group", group)
    assert "has no active members" in idle.err + idle.out
    lags = [row for row in idle.rows if row[0] in ("GROUP", group)]
    assert lags == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        [group, topic, "0", "3", "10", "7", "-", "-", "-"],
        [group, topic, "1", "9", "10", "1", "-", "-", "-"],
    ]
    with_epochs = groups("--describe", "--group", group, "--offsets", "--verbose").rows
    assert [row[3] for row in with_epochs if row[0] == group] == ["0", "0"]
    state = groups("--describe", "--group", group, "--state").rows
    assert [row for row in state if row[0] == group] == [[group, served.address, "(1)", "-", "Empty", "0"]]
    admin.join(group, topic, instance="seat-1")
    member = groups("--describe", "--group", group, "--members").rows[-1]
    assert (member[0], member[2:]) == (group, ["seat-1", "/127.0.0.1", "test", "0"])
    assert groups("--describe", "--group", group, "--state").rows[-1][-3:] == ["range", "Stable", "1"]
    assert group in groups("--describe", "--all-groups").out
    missing = groups("--describe", "--group", f"none-{topic}")
    assert f"GroupIdNotFoundException: Group none-{topic} not found." in missing.out + missing.err


RESETS = {
    "--to-earliest": "0 4 0",
    "--to-latest": "10 10 0",
    "--to-offset 6": "6 6 0",
    "--to-offset 99": "10 10 0",
    "--to-datetime 2020-11-18T11:06:45.000": "5 5 0",
    "--to-datetime 2099-01-01T00:00:00.000": "10 10 0",
    "--by-duration P9000D": "0 4 0",
    "--by-duration PT1H": "10 10 0",
    "--shift-by 1": "4 10 0",
    "--shift-by -5": "0 4 0",
    "--to-current": "3 9 0",
}


@pytest.mark.parametrize("form", RESETS)
def test_offsets_are_reset_in_every_way(form: str, groups: Run, topic: str, admin: Admin) -> None:
    group = f"reset-{topic}"
    admin.commit(group, {(topic, 0): 3, (topic, 1): 9, (topic, 2): 0})
    expected = {(topic, partition): int(offset) for partition, offset in enumerate(RESETS[form].split())}
    reset = ("--reset-offsets", "--group", group, *form.split())
    planned = groups(*reset, "--topic", topic, "--dry-run").rows
    assert {(row[1], int(row[2])): int(row[3]) for row in planned if row[0] == group} == expected
    assert admin.committed(group) == {(topic, 0): 3, (topic, 1): 9, (topic, 2): 0}
    groups(*reset, "--all-topics", "--execute")
    assert admin.committed(group) == expected


def test_offsets_are_exported_to_a_file_and_reset_from_it(groups: Run, topic: str, admin: Admin, tmp_path: Path) -> None:
    group = f"file-{topic}"
    admin.commit(group, {(topic, 0): 3, (topic, 1): 9})
    exported = groups("--reset-offsets", "--group", group, "--all-topics", "--to-current", "--dry-run", "--export").out
    (tmp_path / "plan.csv").write_text(exported)
    groups("--reset-offsets", "--group", group, "--topic", f"{topic}:0,1", "--to-latest", "--execute")
    assert admin.committed(group) == {(topic, 0): 10, (topic, 1): 10}
    groups("--reset-offsets", "--group", group, "--from-file", tmp_path / "plan.csv", "--execute")
    assert admin.committed(group) == {(topic, 0): 3, (topic, 1): 9}


def test_a_group_with_members_is_neither_reset_nor_deleted(groups: Run, topic: str, admin: Admin) -> None:
    group = f"busy-{topic}"
    admin.commit(group, {(topic, 0): 3})
    admin.join(group, topic)
    refused = groups("--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    assert f"Assignments can only be reset if the group '{group}' is inactive, but the current state is Stable." in refused.out + refused.err
    assert "GroupNotEmptyException: The group is not empty." in groups("--delete", "--group", group).out
    refusal = groups("--delete-offsets", "--group", group, "--topic", topic)
    assert "GroupSubscribedToTopicException" in refusal.out
    assert admin.committed(group) == {(topic, 0): 3}


def test_offsets_and_groups_are_deleted(groups: Run, topic: str, admin: Admin) -> None:
    group = f"old-{topic}"
    admin.commit(group, {(topic, 0): 3, (topic, 1): 9})
    deleted = groups("--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert [topic, "0", "Successful"] in deleted.rows
    assert admin.committed(group) == {(topic, 1): 9}
    assert "UnknownTopicOrPartitionException" in groups("--delete-offsets", "--group", group, "--topic", f"{topic}:77").out
    assert groups("--delete", "--group", group).out == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert group not in groups("--list").out
    assert "GroupIdNotFoundException: The group id does not exist." in groups("--delete", "--group", group).out


# Logs and the cluster


def test_log_offsets_are_listed_by_end_time_and_partition(run: Run, topic: str) -> None:
    def offsets(*arguments: str) -> list[str]:
        return run("kafka-get-offsets", *arguments).out.split()

    assert offsets("--topic", topic) == [f"{topic}:0:10", f"{topic}:1:10", f"{topic}:2:0"]
    assert offsets("--topic", topic, "--time", "earliest") == [f"{topic}:0:0", f"{topic}:1:4", f"{topic}:2:0"]
    assert offsets("--topic", topic, "--time", "1605697605000") == [f"{topic}:0:5", f"{topic}:1:5"]
    assert offsets("--topic", topic, "--time", "max-timestamp") == [f"{topic}:0:9", f"{topic}:1:9"]
    assert offsets("--topic-partitions", f"{topic}:1") == [f"{topic}:1:10"]


def test_records_are_deleted_up_to_an_offset(run: Run, topic: str, tmp_path: Path) -> None:
    offsets_json = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}, {"topic": topic, "partition": 1, "offset": -1}]}
    (tmp_path / "offsets.json").write_text(json.dumps(offsets_json))
    done = run("kafka-delete-records", "--offset-json-file", tmp_path / "offsets.json").out
    assert {f"partition: {topic}-0\tlow_watermark: 7", f"partition: {topic}-1\tlow_watermark: 10"} <= set(done.splitlines())
    assert run("kafka-get-offsets", "--topic", topic, "--time", "earliest").out.split() == [f"{topic}:0:7", f"{topic}:1:10", f"{topic}:2:0"]


def test_log_dirs_are_described(run: Run, topic: str) -> None:
    (brokers,) = json.loads(run("kafka-log-dirs", "--describe", "--topic-list", topic).out.splitlines()[-1])["brokers"]
    (folder,) = brokers["logDirs"]
    assert folder["error"] is None
    assert sorted(part["partition"] for part in folder["partitions"]) == [f"{topic}-{number}" for number in range(3)]
    assert {part["partition"]: part["size"] > 0 for part in folder["partitions"]}[f"{topic}-0"]


def test_the_cluster_reports_its_id_and_api_versions(run: Run, served: Served) -> None:
    versions = run("kafka-broker-api-versions").out
    assert versions.startswith(f"{served.address} (id: 1 rack: null isFenced: false) -> (\n")
    assert "\tJoinGroup(11): 0 to 9 [usable: 9],\n" in versions
    assert "UNKNOWN" not in versions


def test_the_cluster_tool_shows_id_and_endpoints(tools: Tools, served: Served) -> None:
    output = tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", served.address)
    assert (output.code, output.out.startswith("Cluster ID: "), len(output.out.split()[-1])) == (0, True, 22)
    endpoints = tools.run("kafka-cluster", "list-endpoints", "--bootstrap-server", served.address).rows
    assert endpoints[1][:3] == ["1", "127.0.0.1", str(served.port)]


def test_replicas_do_not_move(run: Run, topic: str) -> None:
    assert run("kafka-reassign-partitions", "--list").out == "No partition reassignments found.\n"
    run("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", 0)


def test_a_tool_works_when_started_by_its_script(served: Served, topic: str) -> None:
    """The tool runs in a JVM of its own, started as its script does it."""
    printed = run_java(CLASSES["kafka-get-offsets"], "--bootstrap-server", served.address, "--topic", topic)
    assert printed.split() == [f"{topic}:0:10", f"{topic}:1:10", f"{topic}:2:0"]


# Tools that this broker does not support


UNSUPPORTED = [
    ("kafka-transactions list", "LIST_TRANSACTIONS"),
    ("kafka-transactions find-hanging --broker-id 1", "DESCRIBE_PRODUCERS"),
    ("kafka-configs --describe --entity-type users", "DESCRIBE_CLIENT_QUOTAS"),
]


@pytest.mark.parametrize(("line", "api"), UNSUPPORTED, ids=[line for line, _ in UNSUPPORTED])
def test_unsupported_tools_fail_at_once_with_the_reason(line: str, api: str, run: Run, served: Served) -> None:
    if served.name != "tenure":
        pytest.skip("Apache Kafka serves it")
    script, *arguments = line.split()
    printed = run(script, *arguments, code=1)
    assert f"The node does not support {api}" in printed.out + printed.err


def test_a_setting_of_the_broker_is_refused_with_the_reason(run: Run, served: Served) -> None:
    if served.name != "tenure":
        pytest.skip("Apache Kafka changes it")
    refused = run("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", 1, "--add-config", "log.retention.ms=1000", code=1)
    assert "none can be changed while it runs" in refused.err
