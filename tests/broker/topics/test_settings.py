"""Values of topic settings, judged as by Kafka 4.3.1 (tests/clients/test_against_kafka.py compares them, where Java is)."""

from __future__ import annotations

import pytest

from broker.topics.settings import settings_problem

REPLICAS = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", ""),
        ("cleanup.policy", " compact , delete "),
        ("cleanup.policy", "delete,delete"),
        ("retention.ms", " +7 "),
        ("retention.bytes", "-9223372036854775808"),
        ("preallocate", " TRUE "),
        ("compression.gzip.level", "-1"),
        ("min.cleanable.dirty.ratio", "1e-3"),
        ("remote.storage.enable", "false"),
        (REPLICAS, ""),
        (REPLICAS, "*"),
        (REPLICAS, "0:1, 1:1,"),
    ],
)
def test_values_accepted_by_kafka_are_accepted(name: str, value: str) -> None:
    assert settings_problem([(name, value)]) is None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
        ("retention.ms", "1_0", "Invalid value 1_0 for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "9223372036854775808", "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG"),
        ("segment.bytes", " 7 ", "Invalid value 7 for configuration segment.bytes: Value must be at least 1048576"),
        ("compression.gzip.level", "0", "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"),
        ("compression.zstd.level", "23", "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22"),
        ("min.cleanable.dirty.ratio", "-1", "Invalid value -1.0 for configuration min.cleanable.dirty.ratio: Value must be at least 0"),
        ("min.cleanable.dirty.ratio", "1_0", "Invalid value 1_0 for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE"),
        ("preallocate", "yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"),
        ("compression.type", "GZIP", "Invalid value GZIP for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("remote.storage.enable", "TRUE", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."),
        (REPLICAS, "0:x", f"Invalid value [0:x] for configuration {REPLICAS}: {REPLICAS} must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."),
    ],
)  # fmt: skip
def test_values_refused_by_kafka_are_refused_with_its_message(name: str, value: str, problem: str) -> None:
    assert settings_problem([(name, value)]) == problem


def test_setting_errors_are_reported_in_kafkas_order() -> None:
    bad, unknown = ("retention.ms", "x"), ("nope", "1")
    lags: list[tuple[str, str | None]] = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]
    assert settings_problem([bad, unknown, ("b", None), ("a", None)]) == "Null value not supported for topic configs: b,a"
    assert settings_problem([*lags, bad, unknown]) == "Unknown topic config name: nope"
    assert settings_problem([*lags, bad]) == "Invalid value x for configuration retention.ms: Not a number of type LONG"
    assert settings_problem(lags) == "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"


def test_the_last_duplicate_value_counts_and_any_null_is_refused() -> None:
    assert settings_problem([("retention.ms", "x"), ("retention.ms", "1")]) is None
    assert settings_problem([("retention.ms", "1"), ("retention.ms", "x")]) is not None
    assert settings_problem([("retention.ms", None), ("retention.ms", "1")]) is not None
