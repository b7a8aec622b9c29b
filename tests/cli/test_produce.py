"""`tenure produce`: its input, the partitions of records, and its error messages."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Failure
from cli.client.effects import Unanswered
from cli.records.drafts import Draft
from cli.records.lines import line_groups
from cli.records.partitioning import STICK_BYTES, Partitioner, murmur2, partition_of_key
from cli.records.sending import Sender, Stopped, batches_of
from protocol.batch import Compression
from tests.cli.conftest import Tenure
from tests.running import ROOT, environment, wait_until

pytestmark = pytest.mark.once  # no dependence on the Python version

ReadStored = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def produce(client_command: Tenure, topic: str) -> Tenure:
    return lambda *arguments, stdin="": client_command("produce", topic, *arguments, stdin=stdin)


@pytest.fixture
def read_stored(client_command: Tenure, topic: str) -> ReadStored:
    """A function that reads the records of the topic, sorted by partition and offset."""

    def read() -> list[dict[str, Any]]:
        lines = client_command("consume", topic, "--from-beginning", "--no-follow", "--json").out.splitlines()
        return sorted((json.loads(line) for line in lines), key=lambda record: (record["partition"], record["offset"]))

    return read


# Without a broker


@pytest.mark.parametrize(
    ("key", "code"),
    # Results of the Java client's Utils.murmur2, as unsigned numbers.
    [(b"21", 3321034988), (b"foobar", 3504634814), (b"a-little-bit-long-string", 3308985760), (b"", 275646681), (b"abc", 479470107)],
)
def test_keys_are_partitioned_like_in_other_clients(key: bytes, code: int) -> None:
    assert murmur2(key) == code


def test_keyed_records_stay_in_a_partition_and_others_are_spread_in_runs() -> None:
    partitioner = Partitioner(5, [0, 1, 3], random.Random(1))
    assert {partitioner.choose(b"foobar", 10) for _ in range(9)} == {partition_of_key(b"foobar", 5)}
    chosen = [partitioner.choose(None, STICK_BYTES // 4) for _ in range(40)]
    assert set(chosen) == {0, 1, 3}
    assert all(len(set(chosen[at : at + 4])) == 1 for at in range(0, 40, 4))
    assert all(chosen[at] != chosen[at + 4] for at in range(0, 36, 4))


def test_round_robin_takes_the_usable_partitions_in_turn_also_after_a_batch() -> None:
    partitioner = Partitioner(5, [0, 1, 3], random.Random(1), round_robin=True)
    chosen = []
    for _ in range(9):
        chosen.append(partitioner.choose(None, STICK_BYTES))
        partitioner.switch()
    begin = [0, 1, 3].index(chosen[0])
    assert chosen == ([0, 1, 3] * 4)[begin : begin + 9]
    assert partitioner.choose(b"foobar", 10) == partition_of_key(b"foobar", 5)
    assert [partitioner.choose(None, 1) for _ in range(3)] == chosen[:3]


def test_batches_are_cut_by_bytes_and_keep_their_order() -> None:
    drafts = [(at % 2, Draft(at, None, b"x" * 60_000)) for at in range(12)]
    batches = batches_of(drafts)
    assert [len(drafts) for _, drafts in batches] == [4, 4, 2, 2]
    for partition in (0, 1):
        assert [draft.line for number, drafts in batches for draft in drafts if number == partition] == list(range(partition, 12, 2))


def test_lines_are_read_as_typed_and_the_last_needs_no_line_feed() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\nthr")
    groups = line_groups(reading)
    assert next(groups) == [b"one", b"two"]
    os.write(writing, b"ee\n\n\xff")
    os.close(writing)
    assert list(groups) == [[b"three", b""], [b"\xff"]]
    os.close(reading)


def test_end_of_file_on_a_terminal_is_not_missed() -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"one\ntwo\n\x04")
    assert [line for lines in line_groups(theirs) for line in lines] == [b"one", b"two"]
    os.close(ours)
    os.close(theirs)


# Against a broker


def test_values_and_lines_are_written_and_reported_with_their_offsets(produce: Tenure, read_stored: ReadStored, topic: str) -> None:
    assert produce("--key", "k", "--value", "one", "--value", "two", "--partition", "1") == (
        0,
        f"2 records written to {topic}: partition 1, offsets 0 to 1\n",
        "",
    )
    assert produce("--key-separator", ":", "--partition", "1", stdin="a:1\nb::2\n").code == 0
    assert produce("--partition", "0", "--header", "h=v", "--header", "n", stdin=b"\xff\n\nlast").out == f"3 records written to {topic}: partition 0, offsets 0 to 2\n"
    records = read_stored()
    assert [(r["partition"], r["key"], r.get("value", r.get("value_base64"))) for r in records] == [
        (0, None, "/w=="),
        (0, None, ""),
        (0, None, "last"),
        (1, "k", "one"),
        (1, "k", "two"),
        (1, "a", "1"),
        (1, "b", ":2"),
    ]
    assert records[0]["headers"] == [{"name": "h", "value": "v"}, {"name": "n", "value": None}]


def test_keyed_records_go_to_the_partition_other_clients_choose(produce: Tenure, read_stored: ReadStored) -> None:
    keys = [f"key-{n}" for n in range(20)]
    summary = json.loads(produce("--key-separator", "=", "--json", stdin="".join(f"{key}=v\n" for key in keys)).out)
    assert {record["key"]: record["partition"] for record in read_stored()} == {key: partition_of_key(key.encode(), 2) for key in keys}
    assert summary["records"] == 20
    assert sum(entry["last_offset"] - entry["first_offset"] + 1 for entry in summary["partitions"]) == 20


def test_tombstones_are_produced_by_option_or_per_line(produce: Tenure, read_stored: ReadStored) -> None:
    assert produce("--key", "a", "--null-value").code == 0
    assert produce("--null-value", stdin="b\nc\n").code == 0
    assert {(record["key"], record["value"]) for record in read_stored()} == {("a", None), ("b", None), ("c", None)}


def test_json_lines_set_every_field(produce: Tenure, read_stored: ReadStored) -> None:
    lines = [
        {"key": "k", "value": {"n": [1, 2.5, None]}, "partition": 1, "timestamp": "2026-11-21T08:30:00Z", "headers": {"a": "1"}},
        {"key_base64": "AP8=", "value": None, "partition": 1, "timestamp": 5},
        {"value": "plain", "partition": 1, "topic": "elsewhere", "offset": 9},
    ]
    result = produce("--json-lines", "--json", stdin="".join(json.dumps(line) + "\n" for line in lines))
    assert json.loads(result.out)["partitions"] == [{"partition": 1, "records": 3, "first_offset": 0, "last_offset": 2}]
    first, second, third = read_stored()
    assert (first["value"], first["timestamp"], first["headers"]) == ('{"n":[1,2.5,null]}', "2026-11-21T08:30:00Z", [{"name": "a", "value": "1"}])
    assert (second["key_base64"], second["value"], second["timestamp"]) == ("AP8=", None, "1970-01-01T00:00:00.005Z")
    assert (third["value"], third["offset"]) == ("plain", 2)


def test_the_json_of_consume_can_be_produced_as_a_copy(produce: Tenure, read_stored: ReadStored, client_command: Tenure, topic: str) -> None:
    produce("--partition", "1", stdin=b"a\n\xff\x00\n")
    printed = client_command("consume", topic, "--from-beginning", "--no-follow", "--json").out
    assert produce("--json-lines", "--json", stdin=printed).code == 0
    before, after = read_stored()[:2], read_stored()[2:]
    assert [{**record, "offset": record["offset"] + 2} for record in before] == after


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_consumed(produce: Tenure, read_stored: ReadStored, codec: str) -> None:
    assert produce("--compression", codec, "--partition", "0", stdin="".join(f"value {n}\n" for n in range(500))).code == 0
    assert [record["value"] for record in read_stored()] == [f"value {n}" for n in range(500)]


@pytest.mark.parametrize("acks", ["1", "0"])
def test_weaker_acks_are_mentioned_in_the_output(produce: Tenure, read_stored: ReadStored, acks: str) -> None:
    result = produce("--acks", acks, "--partition", "0", "--value", "x")
    assert result.code == 0
    assert ("without acknowledgement" in result.out) == (acks == "0")
    wait_until(read_stored)


def test_a_dry_run_reads_everything_and_sends_nothing(produce: Tenure, read_stored: ReadStored, topic: str) -> None:
    summary = produce("--dry-run", "--key-separator", ":", stdin="a:1\nb:22\n")
    assert summary == (0, f"would send 2 records of 5 bytes to {topic} (2 partitions): 2 with a key\n", "")
    assert json.loads(produce("--dry-run", "--key", "k", "--null-value", "--json").out)["tombstones"] == 1
    assert produce("--dry-run", "--key-separator", ":", stdin="a:1\nb\n").code == 65
    assert read_stored() == []


def test_partition_any_ignores_the_partition_of_json_lines_and_is_round_robin(produce: Tenure, read_stored: ReadStored, topic: str) -> None:
    lines = "".join(f'{{"value": "v{at}", "partition": {7 if at else 1}}}\n' for at in range(6))
    assert produce("--partition", "any", "--json-lines", "--json", stdin=lines).code == 0
    placed = {record["value"]: record["partition"] for record in read_stored()}
    assert [placed[f"v{at}"] for at in range(6)] in ([0, 1] * 3, [1, 0] * 3)


def test_without_partition_a_line_of_json_keeps_its_own(produce: Tenure, read_stored: ReadStored, topic: str) -> None:
    lines = "".join(f'{{"value": "v{at}", "partition": {at // 2 % 2}}}\n' for at in range(4))
    assert produce("--json-lines", "--json", stdin=lines).code == 0
    assert {record["value"]: record["partition"] for record in read_stored()} == {"v0": 0, "v1": 0, "v2": 1, "v3": 1}


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "line", "written"),
    [
        (("--key-separator", ":"), "a:1\nb\nc:1\n", 65, "line 2 has no ':' between key and value (--key-separator); 1 record was written before", 1),
        (("--json-lines",), '{"value": 1}\n[]\n', 65, 'line 2 is not a JSON object like {"key": "k", "value": "v"}; 1 record was written before', 1),
        (("--json-lines",), '{"key": "k"}\n', 65, 'line 1 has no "value" (a tombstone has "value": null); nothing was written', 0),
        (("--json-lines",), '{"value": "v", "Key": "k"}\n', 65, "line 1 has a field 'Key'; there are key, value,", 0),
        (("--json-lines",), '{"value_base64": "?"}\n', 65, "line 1 has a value_base64 that is not base64", 0),
        (("--json-lines",), '{"value": "v", "partition": 2}\n', 66, "line 1: topic {topic} has partitions 0 to 1, not 2 (--partition any", 0),
        (("--partition", "2"), "x\n", 66, "--partition: topic {topic} has partitions 0 to 1, not 2", 0),
        (("--value", "x", "--file", "y"), "", 64, "--value and --file exclude each other", 0),
        (("--file", "/nowhere/at/all"), "", 66, "/nowhere/at/all: no such file or directory; nothing was written", 0),
        (("--file", "/"), "", 66, "/: is a directory; nothing was written", 0),
        (("--header", "=v", "--value", "x"), "", 64, "--header '=v' is not NAME=VALUE", 0),
        (("--key-separator", ":", "--json-lines"), "", 64, "--json-lines and --key-separator exclude each other", 0),
        (("--json-lines", "--value", "{}"), "", 64, "--json-lines and --value exclude each other", 0),
        (("--json-lines", "--null-value", "--key", "k"), "", 64, "--json-lines and --null-value exclude each other", 0),
        (("--compression", "rar", "--value", "x"), "", 64, "--compression cannot be 'rar'", 0),
    ],
)
def test_an_invalid_record_is_one_error_line_with_the_written_count(
    produce: Tenure, read_stored: ReadStored, topic: str, arguments: tuple[str, ...], stdin: str, code: int, line: str, written: int
) -> None:
    result = produce(*arguments, stdin=stdin)
    assert result.code == code
    assert result.err.startswith("tenure: " + line.replace("{topic}", topic))
    assert len(result.err.splitlines()) == 1
    assert len(read_stored()) == written


def test_an_unknown_topic_is_named_with_the_command_to_create_it(client_command: Tenure, topic: str) -> None:
    result = client_command("produce", f"{topic}s", "--value", "x")
    assert result.code == 66
    assert result.err == (
        f"tenure: topic {topic}s does not exist; is it {topic}? "
        "(tenure topic list lists all topics; --create creates it)\n"
    )


def test_an_internal_topic_cannot_be_written(client_command: Tenure) -> None:
    result = client_command("produce", "__consumer_offsets", "--value", "x")
    assert (result.code, result.err) == (1, "tenure: topic __consumer_offsets is internal: clients cannot write to it; nothing was written\n")


def test_a_too_large_record_is_not_sent_and_others_are(produce: Tenure, read_stored: ReadStored, client_command: Tenure, topic: str) -> None:
    stdin = b"small\n" + b"x" * 1_200_000 + b"\nbehind\n"
    result = produce(stdin=stdin)
    assert result.code == 1
    assert "line 2: 1200000 bytes are more than topic " in result.err
    assert "max.message.bytes of 1048588 bytes" in result.err
    assert [record["value"] for record in read_stored()] == ["small"]
    assert produce("--compression", "zstd", stdin=stdin).code == 0
    assert len(read_stored()) == 4


def test_batches_too_large_for_the_topic_are_split(produce: Tenure, read_stored: ReadStored, client_command: Tenure, topic: str) -> None:
    client_command("topic", "config", "set", topic, "max.message.bytes=500")
    result = produce("--partition", "0", stdin="".join(f"{n:0100}\n" for n in range(50)))
    assert result.out == f"50 records written to {topic}: partition 0, offsets 0 to 49\n"
    assert [int(record["value"]) for record in read_stored()] == list(range(50))
    refused = produce("--partition", "0", stdin="short\n" + "x" * 600 + "\nnever\n")
    assert refused.code == 1
    assert refused.err.startswith(f"tenure: line 2: 600 bytes are more than topic {topic} accepts in one record")
    assert refused.err.endswith("; 1 record was written before; lines 2-3 were not\n")
    assert [record["value"] for record in read_stored()][50:] == ["short"]


def test_a_record_refused_by_a_compacted_topic_is_named(produce: Tenure, client_command: Tenure, topic: str) -> None:
    client_command("topic", "config", "set", topic, "cleanup.policy=compact")
    result = produce("--value", "no key")
    assert result.code == 1
    assert "key" in result.err
    assert "nothing was written" in result.err


# Connections that break


class Breaking(Cluster):
    """A connection that sends the first Produce request, and breaks before the reply is read."""

    breaks = 1

    def send_to_broker(self, broker_id: int, request: Any, **more: Any) -> Any:
        reply = super().send_to_broker(broker_id, request, **more)
        if type(request).__name__ == "ProduceRequest" and self.breaks:
            self.breaks -= 1
            raise Unanswered(Failure(69, "the connection broke"))
        return reply


def test_a_batch_with_a_lost_reply_is_resent_and_written_once(bootstrap: str, topic: str, read_stored: ReadStored) -> None:
    with Breaking(addresses(bootstrap)) as cluster:
        sender = Sender(cluster, topic)
        sender.send([(0, Draft(1, None, b"one")), (0, Draft(2, None, b"two")), (1, Draft(3, None, b"three"))])
        sender.send([(0, Draft(4, None, b"four"))])
    assert [(record["partition"], record["value"]) for record in read_stored()] == [(0, "one"), (0, "two"), (0, "four"), (1, "three")]
    assert (sender.sent[0].first, sender.sent[0].last) == (0, 2)


def test_without_idempotence_nothing_is_resent_and_uncertain_records_are_named(bootstrap: str, topic: str, read_stored: ReadStored) -> None:
    with Breaking(addresses(bootstrap)) as cluster:
        sender = Sender(cluster, topic, acks=1, compression=Compression.NONE)
        with pytest.raises(Stopped) as stopped:
            sender.send([(0, Draft(1, None, b"one")), (0, Draft(2, None, b"two"))])
    assert [draft.line for draft in stopped.value.in_doubt] == [1, 2]
    assert str(stopped.value) == "the connection broke"  # separate lines name the uncertain records
    assert stopped.value.refused == []
    assert [record["value"] for record in read_stored()] == ["one", "two"]


# As a process


def test_typed_lines_are_sent_at_once(topic: str, bootstrap: str, read_stored: ReadStored) -> None:
    command = [sys.executable, "-P", "-m", "tenure", "produce", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=ROOT) as process:
        assert process.stdin is not None
        watchdog = threading.Timer(20, process.kill)
        watchdog.start()
        process.stdin.write(b"first\n")
        process.stdin.flush()
        wait_until(read_stored)
        out, _ = process.communicate(b"last\n", timeout=10)
        watchdog.cancel()
    assert process.returncode == 0
    assert b"2 records written to" in out


def test_sigterm_ends_producing_with_the_number_of_written_records(topic: str, bootstrap: str, read_stored: ReadStored) -> None:
    command = [sys.executable, "-P", "-m", "tenure", "produce", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        wait_until(read_stored)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
        assert b"1 record written to" in process.stdout.read()


def test_a_missing_topic_is_created_on_request(client_command: Tenure, topic: str) -> None:
    new = f"{topic}-new"
    summary = client_command("produce", new, "--create", "--dry-run", "--value", "x")
    plan = f"{new} would be created\nwould send 1 record of 1 byte to {new} (1 partition): 0 with a key\n"
    assert (summary.code, summary.out, summary.err) == (0, plan, "")
    values = json.loads(client_command("produce", new, "--create", "--dry-run", "--value", "x", "--json").out)
    assert (values["created"], values["records"], values["dry_run"]) == (True, 1, True)
    impossible = client_command("produce", new, "--create", "--dry-run", "--value", "x", "--partition", "7")
    assert (impossible.code, "has only partition 0, not 7" in impossible.err) == (66, True)
    assert client_command("produce", "a b", "--create", "--dry-run", "--value", "x").code == 66
    assert client_command("topic", "describe", new).code == 66
    created = client_command("produce", new, "--create", "--value", "x")
    assert (created.code, created.out) == (0, f"{new} created\n1 record written to {new}: partition 0, offset 0\n")
    repeated = client_command("produce", new, "--create", "--value", "y", "--json")
    assert (json.loads(repeated.out)["created"], json.loads(repeated.out)["records"]) == (False, 1)
    refused = client_command("produce", "a b", "--create", "--value", "x")
    assert refused.code != 0
