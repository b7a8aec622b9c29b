from __future__ import annotations

import json

import pytest

from tests.cli.admin import Admin
from tests.cli.conftest import Tenure

pytestmark = pytest.mark.once  # no dependence on the Python version

TOPIC = "show.t"


@pytest.fixture(scope="module")
def admin(admin: Admin) -> Admin:
    admin.create_topic(TOPIC)
    return admin


@pytest.fixture
def offsets(client_command: Tenure) -> Tenure:
    return lambda *arguments, stdin="": client_command("group", "offsets", *arguments, stdin=stdin)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_committed_offsets_are_shown_with_log_ends_and_lag(admin: Admin, offsets: Tenure) -> None:
    admin.commit("show.plain", {(TOPIC, 0): 7, (TOPIC, 1): 10})
    result = offsets("show", "show.plain")
    assert (result.code, result.err) == (0, "")
    assert rows(result.out) == [
        ["GROUP", "TOPIC", "PARTITION", "COMMITTED", "EARLIEST", "LATEST", "LAG"],
        ["show.plain", TOPIC, "0", "7", "0", "10", "3"],
        ["show.plain", TOPIC, "1", "10", "4", "10", "0"],
        ["show.plain:", "lag", "3", "in", "2", "partitions"],
    ]


def test_epoch_and_metadata_are_shown_if_present_with_control_characters_escaped(admin: Admin, offsets: Tenure) -> None:
    admin.commit("show.more", {(TOPIC, 0): 7}, epoch=0, metadata="from \x1b[31mme")
    assert rows(offsets("show", "show.more").out) == [
        ["GROUP", "TOPIC", "PARTITION", "COMMITTED", "EARLIEST", "LATEST", "LAG", "EPOCH", "METADATA"],
        ["show.more", TOPIC, "0", "7", "0", "10", "3", "0", "from", "\\x1b[31mme"],
    ]


def test_a_named_topic_is_shown_with_partitions_without_commits(admin: Admin, offsets: Tenure) -> None:
    admin.commit("show.some", {(TOPIC, 0): 7, (TOPIC, 1): 10})
    assert rows(offsets("show", "show.some", "--topic", f"{TOPIC}:0,2").out)[1:] == [
        ["show.some", TOPIC, "0", "7", "0", "10", "3"],
        ["show.some", TOPIC, "2", "-", "0", "0", "-"],
        ["show.some:", "lag", "3", "in", "2", "partitions"],
    ]


def test_an_offset_outside_of_its_log_is_marked(admin: Admin, offsets: Tenure) -> None:
    admin.commit("show.odd", {(TOPIC, 0): 70, (TOPIC, 1): 1})
    first, second = offsets("show", "show.odd").out.splitlines()[1:3]
    assert first.endswith("-60  after the end of the log: was the topic created again?")
    assert second.endswith("9  before the start of the log: records were deleted")


def test_json_has_numbers_and_nulls(admin: Admin, offsets: Tenure) -> None:
    admin.commit("show.json", {(TOPIC, 0): 7})
    document = json.loads(offsets("show", "show.json", "--json", "--topic", f"{TOPIC}:0,2").out)
    committed, none = document["groups"][0]["offsets"]
    assert document["groups"][0]["lag"] == 3
    assert committed == {
        "topic": TOPIC,
        "partition": 0,
        "committed_offset": 7,
        "leader_epoch": None,
        "metadata": "",
        "earliest_offset": 0,
        "latest_offset": 10,
        "lag": 3,
        "note": None,
    }
    assert (none["committed_offset"], none["lag"], none["latest_offset"]) == (None, None, 0)


def test_a_missing_group_is_distinguished_from_one_without_commits(admin: Admin, offsets: Tenure) -> None:
    admin.join("show.fresh", TOPIC)
    assert offsets("show", "show.fresh") == (0, "show.fresh has committed no offsets\n", "")
    assert offsets("show", "show.not-there") == (66, "", "tenure: there is no group show.not-there (tenure group list lists all groups)\n")
    both = offsets("show", "show.not-there", "show.fresh")
    assert offsets("show", "show.frehs").err == "tenure: there is no group show.frehs; is it show.fresh? (tenure group list lists all groups)\n"
    assert both == (66, "show.fresh has committed no offsets\n", "tenure: there is no group show.not-there\n")


def test_offsets_are_deleted_by_topic_and_by_partition(admin: Admin, offsets: Tenure) -> None:
    admin.commit("show.delete", {(TOPIC, 0): 1, (TOPIC, 1): 5, (TOPIC, 2): 0})
    dry_run = offsets("delete", "show.delete", "--topic", TOPIC, "--dry-run")
    assert (dry_run.code, dry_run.out.splitlines()[-1]) == (0, "dry run: nothing was changed, the offsets of 3 partitions would be deleted")
    assert len(admin.committed("show.delete")) == 3
    deleted = offsets("delete", "show.delete", "--topic", f"{TOPIC}:1,7", "--topic", "elsewhere", "--json")
    assert deleted.err.splitlines() == [f"tenure: group show.delete has committed nothing for {partition}" for partition in (f"{TOPIC}:7", "elsewhere")]
    assert json.loads(deleted.out)["offsets"] == [{"topic": TOPIC, "partition": 1, "committed_offset": 5, "error": None}]
    assert admin.committed("show.delete") == {(TOPIC, 0): 1, (TOPIC, 2): 0}
    assert offsets("delete", "show.delete", "--topic", TOPIC, "--yes").out.endswith("deleted the offsets of 2 partitions of group show.delete\n")
    assert admin.committed("show.delete") == {}


def test_offsets_of_a_live_member_are_not_deleted_and_the_dry_run_reports_it(admin: Admin, offsets: Tenure) -> None:
    admin.create_topic("show.other", (1,), {})
    admin.commit("show.busy", {(TOPIC, 0): 1, ("show.other", 0): 0})
    admin.join("show.busy", TOPIC)
    words = f"{TOPIC}:0 {{}}: members of group show.busy are subscribed to the topic: stop them first, or remove them (tenure group remove-member)\n"
    dry_run = offsets("delete", "show.busy", "--topic", TOPIC, "--topic", "show.other", "--dry-run")
    assert (dry_run.code, dry_run.err) == (1, "tenure: " + words.format("would not be deleted"))
    assert dry_run.out.endswith("dry run: nothing was changed, the offset of 1 partition would be deleted\n")
    done = offsets("delete", "show.busy", "--topic", TOPIC, "--topic", "show.other")
    assert (done.code, done.err) == (1, "tenure: " + words.format("not deleted"))
    assert admin.committed("show.busy") == {(TOPIC, 0): 1}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("delete", "show.nobody", "--topic", TOPIC), 66, "there is no group show.nobody"),
        (("delete", "show.nobody"), 64, "--topic"),
        (("show",), 64, "--all"),
        (("show", "show.nobody", "--topic", "nowhere"), 66, "topic nowhere does not exist"),
    ],
)
def test_an_impossible_request_is_reported_in_one_line(arguments: tuple[str, ...], code: int, words: str, admin: Admin, offsets: Tenure) -> None:
    result = offsets(*arguments)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert words in result.err


@pytest.mark.parametrize("action", ["show", "reset", "delete"])
def test_the_examples_in_help_parse(action: str, tenure: Tenure) -> None:
    helped = tenure("group", "offsets", action, "--help")
    assert helped.code == 0
    examples = [line.split("#")[0].split() for line in helped.out.splitlines() if line.startswith("  tenure group offsets")]
    assert len(examples) >= 2
    for example in examples:
        # Each example must be valid: it fails only because a broker (69) or a file (66) is missing.
        words = [word for word in example[1:] if word not in (">", "before.json")]
        assert tenure(*words, "--bootstrap", "127.0.0.1:1", "--timeout", "1").code in (66, 69), example
