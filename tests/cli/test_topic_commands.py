"""`tenure topic` against a started broker."""

from __future__ import annotations

import base64
import json

import pytest

from tests.cli.conftest import Tenure

pytestmark = pytest.mark.once  # no dependence on the Python version


def test_a_topic_is_created_listed_described_changed_and_deleted(client_command: Tenure, name: str) -> None:
    created = client_command("topic", "create", name, "--partitions", "3", "--set", "retention.ms=86400000")
    assert created == (0, f"{name} created: 3 partitions, replication factor 1, retention.ms=86400000\n", "")
    assert [line.split() for line in client_command("topic", "list").out.splitlines() if name in line] == [[name, "3", "1"]]
    described = client_command("topic", "describe", name)
    assert described.code == 0
    assert described.out.startswith(f"{name}: 3 partitions, replication factor 1, id ")
    assert "PARTITION  LEADER  REPLICAS  IN SYNC  EARLIEST  LATEST  RECORDS  SIZE\n        0       1  1" in described.out
    assert "retention.ms  86400000  topic" in described.out
    assert client_command("topic", "alter", name, "--partitions", "5").out == f"{name} was changed:\n  partitions: 3 -> 5\n"
    assert client_command("topic", "config", "set", name, "cleanup.policy=compact").out == f"{name} was changed:\n  cleanup.policy: delete -> compact\n"
    assert client_command("topic", "config", "unset", name, "retention.ms").out == f"{name} was changed:\n  retention.ms: 86400000 -> its default\n"
    after = json.loads(client_command("topic", "describe", name, "--json").out)["topics"][0]
    assert [partition["partition"] for partition in after["partitions"]] == [0, 1, 2, 3, 4]
    assert [(setting["name"], setting["value"], setting["source"], setting["without_it"]) for setting in after["settings"]] == [("cleanup.policy", "compact", "topic", "delete")]
    for same in (("alter", name, "--partitions", "5"), ("config", "set", name, "cleanup.policy=compact"), ("config", "unset", name, "retention.ms")):
        assert client_command("topic", *same).out == f"{name} has these values already\n"
    deleted = client_command("topic", "delete", name)
    assert (deleted.code, deleted.out) == (0, f"{name} deleted: 5 partitions, 0 records (0 B)\n")
    assert client_command("topic", "describe", name).code == 66


def test_a_dry_run_changes_nothing(client_command: Tenure, name: str) -> None:
    dry_run = json.loads(client_command("topic", "create", name, "--partitions", "2", "--dry-run", "--json").out)
    assert dry_run["dry_run"] is True
    assert (dry_run["topics"][0]["outcome"], dry_run["topics"][0]["partitions"]) == ("would be created", 2)
    assert client_command("topic", "describe", name).code == 66
    client_command("topic", "create", name)
    assert "partitions: 1 -> 4" in client_command("topic", "alter", name, "--partitions", "4", "--dry-run").out
    assert "retention.ms: 604800000 -> 5" in client_command("topic", "config", "set", name, "retention.ms=5", "--dry-run").out
    assert client_command("topic", "delete", name, "--dry-run").out == f"{name} would be deleted: 1 partition, 0 records (0 B)\n"
    described = json.loads(client_command("topic", "describe", name, "--json").out)["topics"][0]
    assert (len(described["partitions"]), described["settings"]) == (1, [])


def test_deleting_a_topic_names_the_groups_that_lose_offsets(client_command: Tenure, name: str) -> None:
    client_command("topic", "create", name)
    client_command("produce", name, "--value", "x")
    for group in ("b", "a"):
        assert client_command("consume", name, "--group", f"{group}-{name}", "--from-beginning", "--limit", "1").out == "x\n"
    dry_run = client_command("topic", "delete", name, "--dry-run").out
    assert dry_run.startswith(f"{name} would be deleted: 1 partition, 1 record (")
    assert dry_run.endswith(f" B), offsets of groups a-{name}, b-{name}\n")


def test_of_several_topics_the_valid_ones_are_created_and_each_refusal_is_reported(client_command: Tenure, name: str) -> None:
    client_command("topic", "create", name)
    result = client_command("topic", "create", name, f"{name}-2", "no/slash")
    assert result.code == 1
    assert result.out == f"{name}-2 created: 1 partition, replication factor 1\n"
    refusals = result.err.splitlines()
    assert refusals[0] == f"tenure: topic {name} exists already (tenure topic describe {name}; --if-not-exists keeps it unchanged)"
    assert refusals[1].startswith("tenure: topic 'no/slash': a topic's name has 1 to 249 letters")
    repeated = client_command("topic", "create", name, "--if-not-exists")
    assert repeated == (0, f"{name} exists already; it was not changed\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("alter", "{name}", "--partitions", "1"), 1, "has 2 partitions; their number cannot be reduced"),
        (("config", "set", "{name}", "nonsense=1"), 1, "Unknown topic config name: nonsense"),
        (("config", "set", "{name}", "retention.mss=1"), 1, "Unknown topic config name: retention.mss; did you mean retention.ms?"),
        (("create", "{name}.misset", "--set", "retention.mss=1"), 1, "Unknown topic config name: retention.mss; did you mean retention.ms?"),
        (("config", "set", "{name}", "retention.ms=soon", "cleanup.policy=compact"), 1, "Invalid value soon"),
        (("alter", "{name}"), 64, "--partitions is missing"),
        (("delete", "__consumer_offsets", "--yes"), 1, "topic __consumer_offsets: '__consumer_offsets' stores groups and cannot be deleted\n"),
        (("config", "set", "{name}", "a=1", "a=2"), 64, "a is set twice"),
        (("alter", "{name}", "--partitions", "0"), 64, "'0' is not a number of at least 1"),
        (("create", "{name}-x", "--replication-factor", "3"), 1, "too few brokers"),
        (("create", "{name}-x", "--set", "retention.ms"), 64, "is not NAME=VALUE"),
        (("config", "unset", "{name}", "retention.mss"), 1, "topics have no setting retention.mss; did you mean retention.ms?"),
        (("delete", "{name}", "{name}-not"), 66, "topic {name}-not does not exist; is it {name}?"),
        (("delete", "{name}", "{name}-not"), 66, "; nothing was deleted"),
        (("describe", "a b"), 66, "topic 'a b' cannot exist"),
        (("create", ""), 1, "topic '': a topic's name has"),
        (("create", "large", "--partitions", "10001"), 1, "topic large: Excessively large number of partitions per request"),
    ],
)
def test_an_invalid_change_of_a_topic_is_one_error_line_and_changes_nothing(
    client_command: Tenure, name: str, arguments: tuple[str, ...], code: int, part: str
) -> None:
    client_command("topic", "create", name, "--partitions", "2")
    result = client_command("topic", *(argument.format(name=name) for argument in arguments))
    assert (result.code, result.out) == (code, "")
    assert part.format(name=name) in result.err
    assert len(result.err.splitlines()) == 1
    described = json.loads(client_command("topic", "describe", name, "--json").out)["topics"][0]
    assert (len(described["partitions"]), described["settings"]) == (2, [])


def test_existing_topics_are_described_despite_missing_ones(client_command: Tenure, name: str) -> None:
    client_command("topic", "create", name)
    result = client_command("topic", "describe", name, f"{name}x")
    assert result.code == 66
    assert result.out.startswith(f"{name}: 1 partition")
    assert result.err == f"tenure: topic {name}x does not exist; is it {name}? (tenure topic list lists all topics)\n"
    assert client_command("topic", "delete", f"{name}x", "--if-exists") == (0, f"{name}x does not exist\n", "")


def test_internal_topics_are_shown_on_request(client_command: Tenure, name: str) -> None:
    client_command("topic", "create", name)
    names = [entry["name"] for entry in json.loads(client_command("topic", "list", "--json").out)["topics"]]
    assert name in names
    assert "__consumer_offsets" not in names
    entries = {entry["name"]: entry for entry in json.loads(client_command("topic", "list", "--internal", "--long", "--json").out)["topics"]}
    assert entries["__consumer_offsets"]["internal"] is True
    assert (entries[name]["records"], entries[name]["under_replicated"]) == (0, 0)
    long = client_command("topic", "list", "--long").out.splitlines()
    assert long[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE", "STATE"]


def test_all_topic_settings_are_shown_on_request(client_command: Tenure, name: str) -> None:
    client_command("topic", "create", name)
    settings = {setting["name"]: setting for setting in json.loads(client_command("topic", "config", "show", name, "--json").out)["settings"]}
    assert settings["cleanup.policy"] == {"name": "cleanup.policy", "value": "delete", "source": "default", "sensitive": False, "without_it": None}
    assert "all are defaults" in client_command("topic", "describe", name).out


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_topic_changes_are_confirmed_on_a_terminal(client_command: Tenure, name: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    client_command("topic", "create", name)
    questions: list[str] = []

    def confirm(screen: object, question: str, options: object) -> bool:
        questions.append(question)
        return answer.strip() == "y"

    monkeypatch.setattr("cli.shown.Screen.confirm", confirm)
    result = client_command("topic", "delete", name)
    assert result.code == code
    assert questions == [f"{name}: 1 partition, 0 records (0 B)\nDelete it for good?"]
    if code:
        assert result.err == "tenure: nothing was changed\n"
    assert client_command("topic", "describe", name).code == (0 if code else 66)


def test_internal_topics_are_deleted_only_with_yes(client_command: Tenure, name: str) -> None:
    done = client_command("topic", "delete", "__consumer_offsets")
    assert done.code == 1
    assert done.err.startswith("tenure: __consumer_offsets: the cluster keeps its state there")
    assert done.err.endswith("--yes deletes it nevertheless; nothing was changed\n")
    assert client_command("topic", "delete", "__consumer_offsets", "--dry-run").code == 0


def test_a_topic_id_is_shown_in_the_notation_of_kafka(client_command: Tenure, name: str) -> None:
    created = json.loads(client_command("topic", "create", name, "--json").out)["topics"][0]["id"]
    assert len(base64.urlsafe_b64decode(f"{created}==")) == 16
    assert json.loads(client_command("topic", "describe", name, "--json").out)["topics"][0]["id"] == created
    assert client_command("topic", "describe", name).out.startswith(f"{name}: 1 partition, replication factor 1, id {created}\n")
