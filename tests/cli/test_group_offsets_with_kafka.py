"""`tenure group offsets` against Apache Kafka: resets equal those of Kafka's tool, and each tool reads the other's files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.admin import Admin, Offsets
from tests.cli.conftest import Tenure
from tests.clients.java_tools import CommandResult, Tools, java_tools
from tests.kafka_process import kafka

pytestmark = pytest.mark.kafka

TOPIC, OTHER = "compared.t", "compared.u"
STARTS: Offsets = {(TOPIC, 0): 7, (TOPIC, 1): 6, (TOPIC, 2): 0, (OTHER, 0): 2}
FORMS = {
    "to-earliest": ["--to-earliest"],
    "to-latest": ["--to-latest"],
    "to-offset": ["--to-offset", "6"],
    "to-offset before": ["--to-offset", "1"],
    "to-offset after": ["--to-offset", "99"],
    "to-datetime": ["--to-datetime", "2020-11-18T11:06:45.000"],
    "to-datetime with a zone": ["--to-datetime", "2020-11-18T12:06:45.500+01:00"],
    "to-datetime between": ["--to-datetime", "2020-11-18T11:06:45.001"],
    "to-datetime before": ["--to-datetime", "2020-01-01T00:00:00.000"],
    "to-datetime after": ["--to-datetime", "2099-01-01T00:00:00.000"],
    "by-duration": ["--by-duration", "PT1H"],
    "by-duration far": ["--by-duration", "P9000DT1H30M"],
    "shift-by": ["--shift-by", "2"],
    "shift-by back": ["--shift-by", "-1"],
    "shift-by too far": ["--shift-by", "-100"],
    "shift-by too far on": ["--shift-by", "100"],
    "to-current": ["--to-current"],
}
SCOPES = {
    "all topics": ["--all-topics"],
    "one topic": ["--topic", TOPIC],
    "some partitions": ["--topic", f"{TOPIC}:0,1", "--topic", OTHER],
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with kafka(auto_create_topics_enable="false") as started:
        yield started


@pytest.fixture(scope="module")
def admin(port: int) -> Iterator[Admin]:
    with Admin(port) as opened:
        opened.create_topic(TOPIC)
        opened.create_topic(OTHER, (3,), {})
        opened.commit("compared", STARTS)
        yield opened


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with java_tools(tmp_path_factory.mktemp("tools")) as started:
        yield started


@pytest.fixture
def theirs(tools: Tools, port: int) -> object:
    return lambda *arguments: tools.run("kafka-consumer-groups", "--bootstrap-server", f"127.0.0.1:{port}", *arguments)


@pytest.fixture
def offsets(tenure: Tenure, port: int) -> Tenure:
    return lambda *arguments, stdin="": tenure("--bootstrap", f"127.0.0.1:{port}", "group", "offsets", *arguments, stdin=stdin)


def in_csv(text: str) -> Offsets:
    return {(row[0], int(row[1])): int(row[2]) for row in csv.reader(text.splitlines()) if len(row) == 3}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("form", FORMS)
def test_the_plan_equals_that_of_kafkas_tool(form: str, scope: str, admin: Admin, theirs: object, offsets: Tenure, tmp_path: Path) -> None:
    arguments = [*FORMS[form], *SCOPES[scope]]
    planned: CommandResult = theirs("--reset-offsets", "--group", "compared", *arguments, "--dry-run", "--export")  # type: ignore[operator]
    ours = offsets("reset", "compared", *arguments, "--dry-run", "--export", str(tmp_path / "plan.csv"))
    assert ours.code == 0, ours.err
    expected = in_csv(planned.out)
    assert expected, planned
    assert in_csv((tmp_path / "plan.csv").read_text()) == expected
    assert admin.committed("compared") == STARTS


@pytest.mark.parametrize("new", [False, True])
def test_kafkas_tool_shows_the_offsets_that_were_set(new: bool, admin: Admin, theirs: object, offsets: Tenure) -> None:
    group = f"compared.{new}"
    if not new:
        admin.commit(group, {(TOPIC, 0): 1})
    assert offsets("reset", group, "--to-offset", "5", "--topic", f"{TOPIC}:0-1", "--yes").code == 0
    described: CommandResult = theirs("--describe", "--group", group)  # type: ignore[operator]
    rows = [line.split()[1:6] for line in described.out.splitlines() if line.startswith(group)]
    assert sorted(rows) == [[TOPIC, "0", "5", "10", "5"], [TOPIC, "1", "5", "10", "5"]]
    rows_shown = offsets("show", group).out.splitlines()[1:3]
    assert [line.split()[1:4] + line.split()[5:7] for line in rows_shown] == sorted(rows)


def test_export_files_are_exchanged_with_kafkas_tool(admin: Admin, theirs: object, offsets: Tenure, tmp_path: Path) -> None:
    admin.commit("files", {(TOPIC, 0): 3, (TOPIC, 1): 5})
    admin.commit("files.2", {(TOPIC, 0): 4})
    ours, both = tmp_path / "ours.csv", tmp_path / "both.csv"
    assert offsets("reset", "files", "--to-current", "--all-topics", "--export", str(ours), "--dry-run").code == 0
    read: CommandResult = theirs("--reset-offsets", "--group", "files", "--from-file", ours, "--dry-run", "--export")  # type: ignore[operator]
    assert in_csv(read.out) == {(TOPIC, 0): 3, (TOPIC, 1): 5}
    written: CommandResult = theirs("--reset-offsets", "--group", "files", "--group", "files.2", "--all-topics", "--to-current", "--dry-run", "--export")  # type: ignore[operator]
    both.write_text(written.out)
    assert offsets("reset", "files", "--to-latest", "--all-topics").code == 0
    assert offsets("reset", "files", "--from-file", str(both)).code == 0
    assert admin.committed("files") == {(TOPIC, 0): 3, (TOPIC, 1): 5}


def test_a_group_with_members_is_refused_by_both(admin: Admin, theirs: object, offsets: Tenure, port: int) -> None:
    with Admin(port) as member:
        member.commit("live", {(TOPIC, 0): 3})
        member.join("live", TOPIC)
        refused: CommandResult = theirs("--reset-offsets", "--group", "live", "--to-latest", "--topic", TOPIC, "--execute")  # type: ignore[operator]
        assert "the current state is Stable" in refused.out + refused.err
        ours = offsets("reset", "live", "--to-latest", "--topic", TOPIC)
        assert (ours.code, ours.err) == (
            1,
            "tenure: group live has 1 member (Stable): stop it first, or remove it (tenure group remove-member live --all)\n",
        )
        deleted = offsets("delete", "live", "--topic", TOPIC)
        assert (deleted.code, "members of group live are subscribed to the topic" in deleted.err) == (1, True)
        assert admin.committed("live") == {(TOPIC, 0): 3}


def test_kafkas_tool_does_not_show_deleted_offsets(admin: Admin, theirs: object, offsets: Tenure) -> None:
    admin.commit("deleted", {(TOPIC, 0): 3, (TOPIC, 1): 5})
    assert offsets("delete", "deleted", "--topic", f"{TOPIC}:0").code == 0
    described: CommandResult = theirs("--describe", "--group", "deleted")  # type: ignore[operator]
    assert [line.split()[1:4] for line in described.out.splitlines() if line.startswith("deleted")] == [[TOPIC, "1", "5"]]


def test_a_group_of_the_new_protocol_is_refused_while_it_has_members(port: int, admin: Admin, offsets: Tenure) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "modern", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([TOPIC])
        while consumer.poll(0.1) is None:
            pass
        consumer.commit(asynchronous=False)
        refused = offsets("reset", "modern", "--to-earliest", "--topic", TOPIC)
        assert (refused.code, "group modern has 1 member (" in refused.err) == (1, True)
        assert offsets("show", "modern", "--json").code == 0
    finally:
        consumer.close()
    assert offsets("reset", "modern", "--to-latest", "--topic", TOPIC).code == 0
    group = json.loads(offsets("show", "modern", "--json").out)["groups"][0]
    assert [offset["committed_offset"] for offset in group["offsets"]] == [10, 10, 0]
