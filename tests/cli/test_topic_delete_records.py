"""`tenure topic delete-records`."""

from __future__ import annotations

import json

import pytest

from tests.cli.admin import Admin
from tests.cli.conftest import Tenure


@pytest.fixture
def filled(admin: Admin, name: str) -> str:
    """A topic with the records 0 to 9 in partition 0, 4 to 9 in partition 1, and none in partition 2; record n is n seconds after 11:06:40."""
    admin.create_topic(name)
    return name


def starts(client_command: Tenure, topic: str) -> list[int]:
    described = json.loads(client_command("topic", "describe", topic, "--json").out)["topics"][0]
    return [partition["earliest"] for partition in described["partitions"]]


@pytest.mark.parametrize(
    ("before", "expected"),
    [("latest", [10, 10, 0]), ("-3", [7, 7, 0]), ("2020-11-18T11:06:48Z", [8, 8, 0]), ("1d", [10, 10, 0]), ("2020-11-18T11:06:41Z", [1, 4, 0])],
)
def test_records_before_a_position_are_deleted(client_command: Tenure, filled: str, before: str, expected: list[int]) -> None:
    dry_run = client_command("topic", "delete-records", filled, "--before", before, "--dry-run")
    assert dry_run.code == 0
    assert [int(line.split()[2]) for line in dry_run.out.splitlines()[1:-1]] == expected
    assert starts(client_command, filled) == [0, 4, 0]
    result = client_command("topic", "delete-records", filled, "--before", before, "--json")
    partitions = json.loads(result.out)["partitions"]
    assert [partition["before"] for partition in partitions] == expected
    assert not any(partition["error"] for partition in partitions)
    assert starts(client_command, filled) == expected


def test_only_the_named_partitions_lose_records(client_command: Tenure, filled: str) -> None:
    result = client_command("topic", "delete-records", filled, "--before", "6", "--partition", "1")
    assert result == (0, f"PARTITION  EARLIEST  NEW EARLIEST  LATEST  DELETED\n        1         4             6      10        2\ndeleted 2 offsets of {filled}\n", "")
    assert starts(client_command, filled) == [0, 6, 0]
    assert client_command("topic", "delete-records", filled, "--before", "6", "--partition", "1").out.endswith("there is nothing to delete\n")


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        ("--before 11 --partition 0", 66, "--before: {name}-0 ends at offset 10, before 11 (--before latest deletes all of its records)"),
        ("--before 2 --partition 7", 66, "--partition: topic {name} has 3 partitions, and no 7"),
        ("--before yesterday", 64, "--before 'yesterday' is not a position: earliest, latest"),
        ("--before 2026-13-01", 64, "--before '2026-13-01' is not a time: there is no month 13"),
    ],
)
def test_what_cannot_be_deleted_is_named_and_nothing_is_deleted(client_command: Tenure, filled: str, options: str, code: int, line: str) -> None:
    result = client_command("topic", "delete-records", filled, *options.split())
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"tenure: {line.format(name=filled)}")
    assert starts(client_command, filled) == [0, 4, 0]


def test_a_compacted_topic_keeps_its_records(client_command: Tenure, name: str) -> None:
    client_command("topic", "create", name, "--set", "cleanup.policy=compact")
    client_command("produce", name, "--key", "k", "--value", "v")
    result = client_command("topic", "delete-records", name, "--before", "latest", "--json")
    assert result.code == 1
    assert "records are deleted only of topics whose cleanup.policy has delete" in result.err
    assert json.loads(result.out)["partitions"][0]["error"]["code"] == "policy-violation"


def test_internal_topics_lose_records_only_with_yes(client_command: Tenure) -> None:
    result = client_command("topic", "delete-records", "__consumer_offsets", "--before", "latest")
    assert (result.code, result.out) == (1, "")
    assert "--yes" in result.err
