from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.admin import Admin, Offsets
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import old_cluster

pytestmark = pytest.mark.once  # no dependence on the Python version

TOPIC = "reset.t"


@pytest.fixture(scope="module")
def admin(admin: Admin) -> Admin:
    admin.create_topic(TOPIC)
    return admin


@pytest.fixture
def reset(client_command: Tenure) -> Tenure:
    return lambda *arguments, stdin="": client_command("group", "offsets", "reset", *arguments, stdin=stdin)


def committed_at(*offsets: int | None) -> Offsets:
    return {(TOPIC, partition): offset for partition, offset in enumerate(offsets) if offset is not None}


FORMS = [
    (("--to-earliest",), committed_at(0, 4, 0)),
    (("--to-latest",), committed_at(10, 10, 0)),
    (("--to-offset", "6"), committed_at(6, 6, 0)),
    (("--to-offset", "2"), committed_at(2, 4, 0)),
    (("--to-offset", "99"), committed_at(10, 10, 0)),
    (("--to-datetime", "2020-11-18T11:06:45Z"), committed_at(5, 5, 0)),
    (("--to-datetime", "2020-11-18T11:06:45"), committed_at(5, 5, 0)),
    (("--to-datetime", "2020-11-18T13:06:41.500+02:00"), committed_at(2, 4, 0)),
    (("--to-datetime", "2099-01-01"), committed_at(10, 10, 0)),
    (("--by-duration", "PT1S"), committed_at(10, 10, 0)),
    (("--by-duration", "2000w"), committed_at(0, 4, 0)),
    (("--to-current",), committed_at(7, 7, 0)),
]


@pytest.mark.parametrize(("form", "expected"), FORMS, ids=[" ".join(form) for form, _ in FORMS])
def test_each_reset_option_sets_its_offset(form: tuple[str, ...], expected: Offsets, admin: Admin, reset: Tenure) -> None:
    group = f"reset.{' '.join(form)}"
    admin.commit(group, committed_at(7, 7))
    result = reset(group, *form, "--topic", TOPIC)
    assert (result.code, result.err) == (0, "")
    assert admin.committed(group) == expected
    assert result.out.endswith(f"set 3 partitions of group {group}\n")


def test_a_dry_run_of_a_reset_shows_each_partition_and_changes_none(admin: Admin, reset: Tenure) -> None:
    admin.commit("reset.dry", committed_at(7, 3))
    result = reset("reset.dry", "--shift-by", "-5", "--topic", f"{TOPIC}:0-1", "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert [line.split() for line in result.out.splitlines()] == [
        ["TOPIC", "PARTITION", "FROM", "TO", "DIFFERENCE", "EARLIEST", "LATEST", "NOTE"],
        [TOPIC, "0", "7", "2", "-5", "0", "10"],
        [TOPIC, "1", "3", "4", "+1", "4", "10", "-2", "is", "before", "the", "earliest"],
        ["dry", "run:", "nothing", "was", "changed,", "2", "partitions", "would", "be", "set"],
    ]
    assert admin.committed("reset.dry") == committed_at(7, 3)


def test_all_topics_means_all_committed_topics(admin: Admin, reset: Tenure) -> None:
    admin.commit("reset.all", committed_at(7, None, 0))
    assert reset("reset.all", "--to-latest", "--all-topics").code == 0
    assert admin.committed("reset.all") == committed_at(10, None, 0)


def test_resetting_an_unknown_group_creates_it(admin: Admin, reset: Tenure) -> None:
    dry_run = reset("reset.new", "--to-latest", "--topic", TOPIC, "--dry-run")
    assert "the group does not exist yet and would be created" in dry_run.out
    assert admin.committed("reset.new") == {}
    assert reset("reset.new", "--to-latest", "--topic", TOPIC).code == 0
    assert admin.committed("reset.new") == committed_at(10, 10, 0)


def test_several_topics_and_partitions_add_up(admin: Admin, reset: Tenure) -> None:
    admin.create_topic("reset.more", (3, 3), {})
    assert reset("reset.several", "--to-latest", "--topic", f"{TOPIC}:0", "--topic", "reset.more", "--topic", f"{TOPIC}:2").code == 0
    assert admin.committed("reset.several") == {(TOPIC, 0): 10, (TOPIC, 2): 0, ("reset.more", 0): 3, ("reset.more", 1): 3}


def test_nothing_is_reset_while_the_group_has_members(admin: Admin, reset: Tenure) -> None:
    admin.commit("reset.live", committed_at(7))
    admin.join("reset.live", TOPIC)
    words = "group reset.live has 1 member (Stable): stop it first, or remove it (tenure group remove-member reset.live --all)"
    refused = reset("reset.live", "--to-earliest", "--topic", TOPIC)
    assert refused == (1, "", f"tenure: {words}\n")
    dry_run = reset("reset.live", "--to-earliest", "--topic", f"{TOPIC}:0", "--dry-run")
    assert (dry_run.code, dry_run.err) == (1, f"tenure: this would be refused: {words}\n")
    assert dry_run.out.splitlines()[1].split() == [TOPIC, "0", "7", "0", "-7", "0", "10"]
    assert admin.committed("reset.live") == committed_at(7)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--to-latest", "--topic", "reset.T"), 66, "topic reset.T does not exist; is it reset.t?"),
        (("--to-latest", "--topic", f"{TOPIC}:0-99"), 66, f"topic {TOPIC} has no partition 3, 4, 5, 6 and 93 more: it has 3"),
        (("--to-latest", "--topic", f"{TOPIC}:1,3"), 66, f"topic {TOPIC} has no partition 3: it has 3, numbered from 0"),
        (("--to-latest", "--all-topics"), 66, "group reset.wrong has committed no offsets: name topics with --topic"),
        (("--shift-by", "1", "--topic", TOPIC), 66, f"group reset.wrong has committed nothing for {TOPIC}:0-2, so there is no offset to shift"),
        (("--to-latest",), 64, "name the partitions: --topic T[:P,...] or --all-topics"),
        (("--topic", TOPIC), 64, "one of these is missing: --to-earliest, --to-latest"),
        (("--to-latest", "--to-earliest", "--topic", TOPIC), 64, "--to-latest and --to-earliest exclude each other"),
        (("--to-offset", "-1", "--topic", TOPIC), 64, "'-1' is not a whole number of at least 0"),
        (("--to-datetime", "noon", "--topic", TOPIC), 64, "'noon' is not a time like 2026-"),
        (("--by-duration", "1M", "--topic", TOPIC), 64, "'1M' is not a duration like 90s"),
        (("--from-file", "/nowhere/at/all"), 66, "/nowhere/at/all: no such file or directory"),
        (("--from-file", "-"), 65, "standard input: line 1 is not topic,partition,offset"),
    ],
)
def test_an_impossible_reset_is_reported_in_one_line_and_changes_nothing(arguments: tuple[str, ...], code: int, words: str, admin: Admin, reset: Tenure) -> None:
    result = reset("reset.wrong", *arguments, stdin="a,b\n")
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert words in result.err
    assert admin.committed("reset.wrong") == {}


@pytest.mark.parametrize("name", ["plan.csv", "plan.json"])
def test_exported_offsets_are_restored_from_the_file(name: str, admin: Admin, reset: Tenure, tmp_path: Path) -> None:
    group, file = f"reset.{name}", tmp_path / name
    admin.commit(group, committed_at(7, 6), metadata="mine")
    assert reset(group, "--to-current", "--all-topics", "--export", str(file), "--dry-run").code == 0
    assert reset(group, "--to-earliest", "--topic", TOPIC).code == 0
    assert reset(group, "--from-file", str(file)).code == 0
    assert admin.committed(group) == committed_at(7, 6, 0)
    assert reset(group, "--from-file", "-", "--topic", f"{TOPIC}:1", stdin=f"{TOPIC},0,1\nother,{TOPIC},1,5\n{TOPIC},1,9\n").code == 0
    assert admin.committed(group) == committed_at(7, 9, 0)


def test_offsets_are_restored_from_the_json_of_show(admin: Admin, reset: Tenure, client_command: Tenure) -> None:
    admin.commit("reset.again", committed_at(7, 6), epoch=0, metadata="mine")
    before = client_command("group", "offsets", "show", "reset.again", "--json").out
    assert reset("reset.again", "--to-latest", "--topic", TOPIC).code == 0
    assert reset("reset.again", "--from-file", "-", stdin=before).code == 0
    after_reset = json.loads(client_command("group", "offsets", "show", "reset.again", "--topic", f"{TOPIC}:0-1", "--json").out)
    assert after_reset == json.loads(before)


def test_json_has_the_offsets_that_were_set(admin: Admin, reset: Tenure) -> None:
    admin.commit("reset.json", committed_at(7))
    document = json.loads(reset("reset.json", "--to-offset", "99", "--topic", f"{TOPIC}:0", "--json").out)
    assert document == {
        "group": "reset.json",
        "dry_run": False,
        "new_group": False,
        "members": 0,
        "offsets": [
            {
                "topic": TOPIC,
                "partition": 0,
                "from_offset": 7,
                "to_offset": 10,
                "difference": 3,
                "earliest_offset": 0,
                "latest_offset": 10,
                "leader_epoch": None,
                "metadata": "",
                "warning": "99 is after the latest",
                "error": None,
            }
        ],
    }


@pytest.mark.parametrize("release", [(2, 4), (3, 0), (3, 9)])
def test_clusters_as_old_as_kafka_2_4_are_reset(release: tuple[int, int], admin: Admin, tenure: Tenure, bootstrap: str) -> None:
    group = f"reset.{release}"
    admin.commit(group, committed_at(7, 7))
    with old_cluster(bootstrap, release) as old:
        assert tenure("--bootstrap", old.address, "group", "offsets", "reset", group, "--shift-by", "1", "--all-topics").code == 0
        result = tenure("--bootstrap", old.address, "--json", "group", "offsets", "show", group, "reset.not-there")
        assert (result.code, result.err) == (66, "tenure: there is no group reset.not-there\n")
        assert [offset["committed_offset"] for offset in json.loads(result.out)["groups"][0]["offsets"]] == [8, 8]
        assert tenure("--bootstrap", old.address, "group", "offsets", "delete", group, "--topic", f"{TOPIC}:0").code == 0
    assert admin.committed(group) == committed_at(None, 8)
