"""`tenure consume` without a group: where it begins, when it ends, and logs that change while they are read."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from cli.client import Cluster, Failure
from cli.records.fetching import Fetcher
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.cli.conftest import Tenure
from tests.cli.consumers import consuming, poll_until
from tests.running import wait_until

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.fixture
def topic(client_command: Tenure, name: str) -> str:
    """A topic of two partitions: a0 to a4 in the first, b0 to b2 in the second."""
    client_command("topic", "create", name, "--partitions", "2")
    for partition, values in (("0", "a0\na1\na2\na3\na4\n"), ("1", "b0\nb1\nb2\n")):
        assert client_command("produce", name, "--partition", partition, stdin=values).code == 0
    return name


@pytest.fixture
def consume(client_command: Tenure, topic: str) -> Tenure:
    return lambda *arguments, stdin="": client_command("consume", topic, *arguments, stdin=stdin)


def delete_before(cluster: Cluster, topic: str, offset: int) -> None:
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])], 5000)
    assert cluster.send_to_broker(cluster.leader(topic, 0), request).topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (("--from-beginning",), "a0 a1 a2 a3 a4 b0 b1 b2"),
        (("--from", "-2"), "a3 a4 b1 b2"),
        (("--from", "2"), "a2 a3 a4 b2"),
        (("--from", "4", "--partition", "0"), "a4"),
        (("--from", "3", "--partition", "1"), ""),
        (("--from", "1h"), "a0 a1 a2 a3 a4 b0 b1 b2"),
        (("--from", "2000-01-01"), "a0 a1 a2 a3 a4 b0 b1 b2"),
        (("--from", "2100-01-01T00:00:00Z"), ""),
        (("--from", "latest"), ""),
        (("--from-beginning", "--partition", "1"), "b0 b1 b2"),
        (("--from-beginning", "--partition", "1", "--limit", "2"), "b0 b1"),
        (("--from-beginning", "--limit", "0"), ""),
    ],
)
def test_consuming_begins_at_the_given_position_and_stops_at_the_end(consume: Tenure, arguments: tuple[str, ...], values: str) -> None:
    result = consume(*arguments, "--no-follow")
    assert (result.code, result.err) == (0, "")
    assert sorted(result.out.split()) == values.split()


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (("--until", "end"), "a0 a1 a2 a3 a4 b0 b1 b2"),
        (("--until", "2"), "a0 a1 b0 b1"),
        (("--from", "1", "--until", "3"), "a1 a2 b1 b2"),
        (("--from", "4", "--until", "4", "--partition", "0"), ""),
        (("--until", "-2"), "a0 a1 a2 b0"),
        (("--until", "1h"), ""),
        (("--until", "2000-01-01"), ""),
        (("--until", "5", "--partition", "0"), "a0 a1 a2 a3 a4"),
    ],
)
def test_consuming_stops_before_the_position_of_until(consume: Tenure, arguments: tuple[str, ...], values: str) -> None:
    result = consume("--from-beginning" if "--from" not in arguments else "--json", *arguments)
    assert result.code == 0, result.err
    printed = [json.loads(line)["value"] for line in result.out.splitlines()] if "--from" in arguments else result.out.split()
    assert sorted(printed) == values.split()


def test_until_a_time_to_come_waits_for_it(consume: Tenure, topic: str, client_command: Tenure) -> None:
    end = time.time() + 1.5
    result = consume("--from-beginning", "--until", f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(end))}.{int(end % 1 * 1000):03}Z")
    assert time.time() >= end
    assert (result.code, len(result.out.split())) == (0, 8)


def test_a_member_commits_only_up_to_the_position_of_until(consume: Tenure, topic: str, client_command: Tenure) -> None:
    assert sorted(consume("--group", topic, "--from-beginning", "--until", "2").out.split()) == ["a0", "a1", "b0", "b1"]
    shown = json.loads(client_command("group", "offsets", "show", topic, "--json").out)["groups"][0]["offsets"]
    assert [entry["committed_offset"] for entry in shown] == [2, 2]
    assert consume("--group", topic, "--until", "2").out == ""
    assert [entry["committed_offset"] for entry in json.loads(client_command("group", "offsets", "show", topic, "--json").out)["groups"][0]["offsets"]] == [2, 2]
    assert sorted(consume("--group", topic, "--until", "end").out.split()) == ["a2", "a3", "a4", "b2"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--until", "soon"), "--until 'soon' is not a position: "),
        (("--until", "earliest"), "--until 'earliest' would print nothing"),
        (("--until", "5", "--no-follow"), "--until and --no-follow exclude each other"),
        (("--until", "2026-02-30"), "--until '2026-02-30' is not a time: 2026-02 has no day 30"),
    ],
)
def test_an_invalid_end_is_refused(consume: Tenure, arguments: tuple[str, ...], line: str) -> None:
    result = consume(*arguments)
    assert (result.code, result.out) == (64, "")
    assert result.err.startswith(f"tenure: {line}")


def test_consuming_stops_after_an_idle_timeout(consume: Tenure) -> None:
    begin = time.monotonic()
    assert consume("--idle", "0.3") == (0, "", "")
    assert 0.3 <= time.monotonic() - begin < 5


def test_records_are_printed_in_long_form_by_template_and_as_json(consume: Tenure, topic: str) -> None:
    long = consume("--from", "4", "--partition", "0", "--no-follow", "--long").out
    assert long.endswith(f"Z  {topic}-0@4  a4\n")
    assert consume("--from", "4", "--partition", "0", "--limit", "1", "--format", "{topic}:{offset}").out == f"{topic}:4\n"
    record = json.loads(consume("--from", "4", "--partition", "0", "--limit", "1", "--json").out)
    assert (record["topic"], record["partition"], record["offset"], record["key"], record["value"], record["headers"]) == (topic, 0, 4, None, "a4", [])


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("--from", "6", "--partition", "0"), 66, "TOPIC-0 has offsets 0 to 4, not 6"),
        (("--partition", "2"), 66, "--partition: topic TOPIC has 2 partitions, and no 2"),
        (("--from", "tomorrow"), 64, "--from 'tomorrow' is not a position: earliest, latest, an offset,"),
        (("--from", "1", "--from-beginning"), 64, "--from and --from-beginning exclude each other"),
        (("--format", "{value"), 64, "--format: {value has no } ({{ for a brace)"),
        (("--format", "{nothing}"), 64, "--format: {nothing} is none of {topic},"),
        (("--format", "{value}", "--json"), 64, "--json excludes --format, --long and --raw"),
        (("--instance", "i"), 64, "--instance is for members of a group"),
        (("--group", "g", "--partition", "1"), 64, "--partition and --group exclude each other"),
        (("--group", "g", "--heartbeat", "50"), 64, "--heartbeat must be shorter than --session-timeout"),
        (("--idle", "0"), 64, ""),
        (("nosuch-topic",), 66, "topic nosuch-topic does not exist"),
    ],
)
def test_an_invalid_command_line_is_one_error_line(consume: Tenure, topic: str, arguments: tuple[str, ...], code: int, line: str) -> None:
    result = consume(*arguments)
    assert result.code == code
    assert [json.loads(line)["error"]["message"] for line in result.out.splitlines()] == [result.err.removeprefix("tenure: ").strip()] * ("--json" in arguments)
    assert result.err.startswith("tenure: " + line.replace("TOPIC", topic))
    assert len(result.err.splitlines()) == 1


def test_deleted_records_are_reported_and_skipped(consume: Tenure, cluster: Cluster, topic: str) -> None:
    delete_before(cluster, topic, 3)
    result = consume("--from", "1", "--partition", "0", "--no-follow")
    assert result.out.split() == ["a3", "a4"]
    assert result.err == f"tenure: {topic}-0: 2 offsets from 1 on are deleted; starting at 3\n"


def test_a_position_outside_the_log_is_reset_to_its_nearest_end(cluster: Cluster, topic: str) -> None:
    reported: list[str] = []
    fetcher = Fetcher(cluster, reported.append)
    delete_before(cluster, topic, 3)
    fetcher.assign({(topic, 0): 1})
    assert poll_until(fetcher, 2) == ["a3", "a4"]
    assert reported == [f"{topic}-0: offsets 1 to 2 were deleted, perhaps by the topic's retention; continuing at 3"]
    fetcher.assign({(topic, 0): 99})
    wait_until(lambda: fetcher.poll(0.2) or len(reported) == 2)
    assert reported[1] == f"{topic}-0: offset 99 is after the end of the log, which has lost records; continuing at its end, 5"
    assert fetcher.positions == {(topic, 0): 5}
    fetcher.close()


def test_records_fetched_for_an_earlier_position_are_dropped(cluster: Cluster, client_command: Tenure, topic: str) -> None:
    client_command("produce", topic, "--partition", "0", "--value", "a5")
    fetcher = Fetcher(cluster, lambda text: None)
    fetcher.assign({(topic, 0): 5})
    fetcher._request_from_leaders()  # what poll() does before it waits for replies
    fetcher.assign({(topic, 0): 1})
    assert poll_until(fetcher, 5) == ["a1", "a2", "a3", "a4", "a5"]
    fetcher.close()


def test_a_deleted_topic_ends_consuming_and_a_recreated_one_is_read_from_its_beginning(
    cluster: Cluster, client_command: Tenure, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.records.fetching.DELETED_AFTER_SECONDS", 0.3)
    reported: list[str] = []
    fetcher = Fetcher(cluster, reported.append)
    fetcher.assign({(topic, 0): 5, (topic, 1): 3})
    assert fetcher.poll(0.05) == []
    client_command("topic", "delete", topic)
    client_command("topic", "create", topic, "--partitions", "2")
    client_command("produce", topic, "--value", "new")
    assert poll_until(fetcher, 1) == ["new"]
    assert reported == [f"topic {topic} was deleted and created again: reading it from its start"]
    client_command("topic", "delete", topic)
    with pytest.raises(Failure, match=f"topic {topic} was deleted"):
        poll_until(fetcher, 1)
    fetcher.close()


def test_consuming_reconnects_after_a_lost_connection(cluster: Cluster, topic: str) -> None:
    fetcher = Fetcher(cluster, lambda text: None)
    fetcher.assign({(topic, 0): 0})
    assert poll_until(fetcher, 5)
    fetcher.assign({(topic, 0): 0})
    for connection in fetcher._connections.values():
        connection.close()
    assert poll_until(fetcher, 5) == ["a0", "a1", "a2", "a3", "a4"]
    fetcher.close()


# As a process


@pytest.mark.parametrize(
    ("number", "more", "code"),
    [
        (signal.SIGINT, (), 0),  # without --limit or --idle a signal is the normal end, with code 0
        (signal.SIGTERM, (), 0),
        (signal.SIGHUP, (), 129),
        (signal.SIGINT, ("--limit", "99"), 130),
        (signal.SIGTERM, ("--idle", "99"), 143),
    ],
)
def test_a_signal_ends_consuming_quietly_and_at_once(bootstrap: str, topic: str, number: signal.Signals, more: tuple[str, ...], code: int) -> None:
    with consuming(bootstrap, topic, "--from-beginning", "--format", "{value}", *more) as process:
        assert process.stdout is not None
        lines_read = {process.stdout.readline() for _ in range(8)}
        assert len(lines_read) == 8
        begin = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        assert time.monotonic() - begin < 3
    assert (process.returncode, out, err) == (code, b"", b"")


@pytest.mark.parametrize(("more", "code"), [(("--limit", "99"), 130), ((), 0)])
def test_an_early_interrupt_is_reported_as_the_last_json_line(bootstrap: str, topic: str, more: tuple[str, ...], code: int) -> None:
    with consuming(bootstrap, topic, "--from-beginning", "--json", *more) as process:
        assert process.stdout is not None
        values = [json.loads(process.stdout.readline())["value"] for _ in range(8)]
        assert len(values) == 8
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    error = b'{"error": {"code": "interrupted", "message": "interrupted", "hint": null}}\n'
    assert (process.returncode, out, err) == (code, error if code else b"", b"")


def test_a_closed_output_pipe_ends_consuming_quietly(bootstrap: str, client_command: Tenure, topic: str) -> None:
    client_command("produce", topic, stdin="x" * 100 + "\n" + ("y" * 100 + "\n") * 3_000)
    with consuming(bootstrap, topic, "--from-beginning") as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(10) == 141
