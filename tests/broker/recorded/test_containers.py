"""Hand-made containers of records are stored or refused as by Apache Kafka, and every stored one can be read."""

from __future__ import annotations

import json

import pytest

from broker.topics.batch_checks import BatchRefused, prepare
from broker.topics.settings import LogSettings, log_settings
from protocol.batch import read_header, records, rewrite
from protocol.batch_times import record_times
from tests.broker.recorded.containers import ANSWERS, INT64_MAX, Case, ask_kafka, every_case

NOW = 1_700_000_000_000
SHOWN = 5  # records that a verdict lists


def settings_of(case: Case) -> LogSettings:
    any_time = {"message.timestamp.before.max.ms": str(INT64_MAX), "message.timestamp.after.max.ms": str(INT64_MAX)}
    return log_settings({"message.timestamp.type": case.timestamp_type, "compression.type": case.compression, **any_time}, {})


def verdict(case: Case) -> str:
    """Our verdict in the words of the Java program. The times of a topic with LogAppendTime are left out."""
    try:
        stored, header = prepare(case.data, 0, len(case.data), settings_of(case), NOW, "t-0")
    except BatchRefused as refused:
        return str(int(refused.error))
    data = bytes(stored)
    read = list(records(data, 0))
    assert [(record.timestamp, record.offset) for record in read] == list(record_times(data, 0))
    assert read_header(data, 0).max_timestamp == header.max_timestamp
    assert records(rewrite(read_header(data, 0), read), 0) == read  # as compaction leaves it
    return f"0 {header.max_timestamp} {len(read)}" + "".join(f" {record.offset}:{record.timestamp}" for record in read[:SHOWN])


def compared(case: Case, kafka: str) -> str:
    """The difference between our verdict and Kafka's, or ""."""
    ours = verdict(case)
    if case.timestamp_type == "LogAppendTime" and ours.startswith("0 ") and kafka.startswith("0 "):
        return "" if ours.split()[2] == kafka.split()[2] else f"{case.name}: {ours} instead of {kafka}"
    if "unreadable" in kafka:  # stored by Kafka, although its consumers stop there: refused here
        return "" if ours == "87" else f"{case.name}: {ours} instead of 87"
    expected = kafka if kafka.startswith("0 ") else kafka.split()[0]
    if "mutation" in case.name and {ours, expected} == {"-1", "87"}:
        return ""  # refused by both; which error comes first depends on how much a reader unpacks at once
    return "" if ours == expected else f"{case.name}: {ours} instead of {kafka}"


def test_containers_are_stored_or_refused_as_by_kafka() -> None:
    answers = json.loads(ANSWERS.read_text())
    cases = every_case()
    assert {case.name for case in cases} == set(answers)
    assert [text for case in cases if (text := compared(case, answers[case.name]))] == []


@pytest.mark.kafka
def test_kafka_says_what_was_recorded() -> None:
    cases = every_case()
    assert [text for case, said in zip(cases, ask_kafka(cases), strict=True) if (text := compared(case, said))] == []
