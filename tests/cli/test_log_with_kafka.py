"""`tenure log dump` prints the same fields of a segment as Kafka's dump tool."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import build_facts
from tests.cli.kafka_dump import DUMP, KAFKA_WRITTEN, RECORD
from tests.cli.log_folders import OFFSETS, Command, Folder, group_record, member, offset
from tests.oracle import run_java
from tests.support.kafka_records import GROUP_KEY, OFFSET_KEY, OFFSET_VALUES

pytestmark = pytest.mark.kafka

BATCH = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<records>\d+) baseSequence: (?P<base_sequence>-?\d+) .*"
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) partitionLeaderEpoch: (?P<leader_epoch>-?\d+) .*"
    r"position: (?P<position>\d+) CreateTime: (?P<max_timestamp>\d+) size: (?P<size>\d+) .* crc: (?P<crc>\d+) isvalid: true"
)
def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {snake(name): renamed(item) for name, item in value.items()}
    return [renamed(item) for item in value] if isinstance(value, list) else value


def common_fields(ours: Any, theirs: Any) -> Any:
    """Our fields that Kafka's output has too: Kafka omits fields missing from the version, and the version of embedded data."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {name: common_fields(ours.get(name), theirs[name]) for name in theirs}
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [common_fields(our, their_item) for our, their_item in zip(ours, theirs, strict=True)]
    return ours


def compare(segment: Path, command: Command) -> int:
    """Check that both tools print the same for a segment; returns the number of records."""
    printed = run_java(DUMP, "--files", segment, "--offsets-decoder").splitlines()
    rows = command.records(segment, "--batches")
    batches = [match.groupdict() for line in printed if (match := BATCH.match(line))]
    ours = [row for row in rows if row["kind"] == "batch"]
    assert [{name: str(our[name]) for name in batch} for our, batch in zip(ours, batches, strict=True)] == batches
    records = [match.groups() for line in printed if (match := RECORD.match(line))]
    assert len(records) == sum(line.startswith("| ") for line in printed)
    for row, (number, timestamp, key, payload) in zip([row for row in rows if row["kind"] != "batch"], records, strict=True):
        assert (row["offset"], row["timestamp"]) == (int(number), int(timestamp))
        assert row["key"] == renamed(json.loads(key)["data"])
        assert {"offset": "1", "group": "2"}[row["kind"]] == json.loads(key)["type"]
        if not payload.startswith("{"):
            assert row["value"] is None
            continue
        theirs = json.loads(payload)
        value = renamed(theirs["data"])
        assert row["value"]["version"] == int(theirs["version"])
        assert common_fields(row["value"], value) == value
    return len(records)


def test_records_written_by_kafka_are_printed_as_by_kafkas_tool(command: Command) -> None:
    counts = [compare(segment, command) for segment in sorted(KAFKA_WRITTEN.glob(f"{OFFSETS}-*/*.log")) if segment.stat().st_size]
    assert counts == [1, 3, 2, 88]


def test_records_written_by_tenure_are_printed_as_by_kafkas_tool(tmp_path: Path, command: Command) -> None:
    folder = Folder(tmp_path / "data")
    facts = [group_record(folder.group, [member("a", "i1"), member("b")], version) for version in range(5)]
    facts += [(bytes.fromhex(OFFSET_KEY), bytes.fromhex(value)) for value in OFFSET_VALUES.values()]
    facts += [offset(folder.group, 3, 9), (bytes.fromhex(GROUP_KEY), None), (bytes.fromhex(OFFSET_KEY), None)]
    log = folder.open(OFFSETS, 0)
    log.append(build_facts(facts, 1_700_000_000_009), log.epoch)
    folder.close(OFFSETS, 0, log)
    assert compare(folder.segment(OFFSETS), command) == 6 + len(facts)
