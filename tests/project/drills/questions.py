"""`python -m tests.project.drills.questions NAME`: questions about an added feature, asked by commands, clients and pages; answers are JSON.

They run in a copy of the checkout, with the feature or without it. A question is answered by true, false, or the error that it ended in.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from pipeline.report.charts import family
from protocol.batch import build
from protocol.batch_record import Record
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from simulator.drawing import draw
from tests.cli.admin import BASE_MS, Admin, port_of
from tests.cli.group_members import JOIN_AT_ONCE, GroupMembers, group_members
from tests.project.listings import listing_named
from tests.running import ROOT, Broker, Client, broker, environment, wait_until

TOPIC, NODE, GROUP = 2, 4, 32  # types of resources in DescribeConfigs
PLANS: Final = 200
SECONDS: Final = 60
JOIN: Final = JoinGroupRequest("g", 60_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")])

Question = Callable[[], bool]


def tenure(*words: object) -> str:
    """What the command prints."""
    command = [sys.executable, "-P", "-m", "tenure", *map(str, words)]
    return subprocess.run(command, env=environment(COLUMNS="200"), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False).stdout


def described(port: int, kind: int, name: str, setting: str) -> bool:
    """Whether DescribeConfigs shows this setting, with its text."""
    with Admin(port) as client:
        request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)], False, True)
        return any(config.name == setting and config.documentation for config in client.ask(request, 3).results[0].configs)


def page_has(page: str, *parts: str) -> bool:
    """Whether a line of a generated page has all these parts."""
    return any(all(part in line for part in parts) for line in (ROOT / "docs" / page).read_text().splitlines())


class Past:
    """The logs of a broker, after it was stopped."""

    def __init__(self, data: str, history: str) -> None:
        self.history = history
        self._data = data

    def dumped(self, kind: str, **fields: object) -> bool:
        """Whether `tenure log dump` decodes a record of this kind, or a note, with these fields."""
        records = [json.loads(line) for line in tenure("log", "dump", "--json", self._data).splitlines()]
        values = [record["value"] or {} for record in records if record["kind"] == kind]
        return any(fields.items() <= value.get("body", value).items() for value in values)

    def page(self) -> str:
        """The page of `tenure analyze`."""
        report = f"{self._data}/report.html"
        tenure("analyze", "run", "--offsets", self._data, "--out", f"{self._data}/analysis", "--report", report, "--master", "none", "--quiet")
        return Path(report).read_text()


@contextmanager
def running(*settings: str) -> Iterator[tuple[Broker, str]]:
    """A broker over a new data directory."""
    with tempfile.TemporaryDirectory(prefix="tenure-drill-") as data, broker("--profile", "test", "--data", data, *settings) as started:
        yield started, data


@contextmanager
def past(act: Callable[[str, GroupMembers], None], rebalances: int) -> Iterator[Past]:
    """What is left when a group `g` has acted and this many rebalances are in its history."""
    with running() as (started, data):
        bootstrap = f"127.0.0.1:{started.port}"
        with group_members(bootstrap, "g") as members:
            act(bootstrap, members)
        wait_until(lambda: tenure("group", "history", "g", "--bootstrap", bootstrap).count("why  ") >= rebalances, pause=0.2)
        history = tenure("group", "history", "g", "--bootstrap", bootstrap)
        started.stop()
        yield Past(data, history)


# A policy that is a switch with its own cause.


def set_policy(bootstrap: str, members: GroupMembers) -> None:
    members.settle({"a": {"t": [0]}})
    tenure("group", "policy", "set", "g", "policies.watch=true", "--yes", "--bootstrap", bootstrap)
    if members.must_rejoin("a"):
        members.settle({"a": {"t": [0]}}, begin="a")
    else:
        members.leave("a")


def policy() -> Iterator[tuple[str, Question]]:
    name, cause = "policies.watch", "policies_changed"
    yield "the help names it", lambda: name in tenure("group", "policy", "set", "--help")
    yield "docs/policies.md has its row", lambda: page_has("policies.md", f"| `{name}`")
    yield "docs/configuration.md has its default", lambda: page_has("configuration.md", f"| `group.policy.{name}`")
    yield "plans of the simulator draw it", lambda: any(draws_policy(seed, name) for seed in range(PLANS))
    yield from of_cause(cause, "policy")
    with running() as (started, _):
        tenure("group", "policy", "set", "g", f"{name}=true", "--yes", "--bootstrap", f"127.0.0.1:{started.port}")
        yield "DescribeConfigs names it", lambda: described(started.port, GROUP, "g", name)
    with past(set_policy, 2) as seen:
        yield "the history has the title of its cause", lambda: "an operator changed the group's policies (policies.watch)" in seen.history
        yield "the dump decodes its cause", lambda: seen.dumped("note", reason=cause.upper())
        yield "the page of analyses has its cause in its colour", lambda: has_colour(seen.page(), cause, "policy")


def draws_policy(seed: int, name: str) -> bool:
    plan = draw(seed).policies
    return plan is not None and any(name in dict(group.first) or name in group.names for _, group in plan.groups)


# A cause.


def of_cause(name: str, colour: str) -> Iterator[tuple[str, Question]]:
    yield "docs/rebalances.md has its row", lambda: page_has("rebalances.md", f"| `{name}` |")
    yield "docs/rebalances.md has it in the diagram", lambda: page_has("rebalances.md", "Stable --> PreparingRebalance", name)
    yield "the report has a colour for it", lambda: family(name) == colour


def has_colour(page: str, cause: str, colour: str) -> bool:
    return any(f"cause-{colour}" in line and cause in line for line in page.splitlines())


def leader_leaves(bootstrap: str, members: GroupMembers) -> None:
    members.settle({"a": {"t": [0]}})
    members.settle({"a": {"t": [0]}, "b": {"t": [1]}})
    members.leave("a")
    members.settle({"b": {"t": [0, 1]}}, begin="b")


def cause() -> Iterator[tuple[str, Question]]:
    name = "leader_left"
    yield from of_cause(name, "left")
    with past(leader_leaves, 3) as seen:
        yield "the history has its title", lambda: "left, and the leader was among them" in seen.history
        yield "the dump decodes it", lambda: seen.dumped("note", reason=name.upper())
        yield "the page of analyses has it in its colour", lambda: has_colour(seen.page(), name, "left")


# A removal.


def seat_is_given_up(bootstrap: str, members: GroupMembers) -> None:
    members.settle({"a": {"t": [0]}})
    members.settle({"a": {"t": [0]}, "b": {"t": [1]}}, static=["b"])
    with Client(port_of(bootstrap)) as newcomer:  # it begins a rebalance, so that the removal is not the cause of one
        newcomer.send(JOIN, JOIN_AT_ONCE)
        wait_until(partial(members.must_rejoin, "a"))
        members.leave("b")


def removal() -> Iterator[tuple[str, Question]]:
    with past(seat_is_given_up, 3) as seen:
        yield "the history has its text", lambda: "left and gave its seat up" in seen.history
        yield "the dump decodes it", lambda: seen.dumped("note", how="SEAT_GIVEN_UP")


# A setting of the broker.


def newcomer_is_removed(started: Broker) -> bool:
    """A new member waits for another to rejoin, until it is removed and so refused."""
    with group_members(f"127.0.0.1:{started.port}", "g") as members:
        members.settle({"a": {"t": [0]}})
        with Client(started.port) as newcomer:
            return bool(newcomer.ask(JOIN, JOIN_AT_ONCE).error_code == ErrorCode.UNKNOWN_MEMBER_ID)


def setting() -> Iterator[tuple[str, Question]]:
    name = "group.new.member.timeout.ms"
    yield "docs/configuration.md has its row", lambda: page_has("configuration.md", f"| `{name}` (ours) | `300000` |", "1000 or more ms")
    with running("--set", f"{name}=1000") as (started, _):
        yield "DescribeConfigs names it", lambda: described(started.port, NODE, "1", name)
        yield "it has an effect", partial(newcomer_is_removed, started)


# A setting of topics.


def batch_is_refused(port: int) -> bool:
    with Admin(port) as client:
        records = [Record(number, BASE_MS, None, b"", []) for number in range(3)]
        return client.produced("t", 0, build(records)) == ErrorCode.RECORD_LIST_TOO_LARGE and not client.produced("t", 0, build(records[:2]))


def topic_setting() -> Iterator[tuple[str, Question]]:
    name = "max.batch.records"
    yield "docs/configuration.md has its default", lambda: page_has("configuration.md", f"| `log.{name}` (ours) |", "1 or more records")
    with running() as (started, _):
        tenure("topic", "create", "t", "--partitions", 1, "--set", f"{name}=2", "--yes", "--bootstrap", f"127.0.0.1:{started.port}")
        yield "DescribeConfigs names it", lambda: described(started.port, TOPIC, "t", name)
        yield "`topic describe` shows it", lambda: [name, "2"] in [
            line.split()[:2] for line in tenure("topic", "describe", "t", "--bootstrap", f"127.0.0.1:{started.port}").splitlines()
        ]
        yield "it has an effect", partial(batch_is_refused, started.port)


# A kind of record of ours.


def record() -> Iterator[tuple[str, Question]]:
    def act(bootstrap: str, members: GroupMembers) -> None:
        members.settle({"a": {"t": [0]}})

    with past(act, 1) as seen:
        yield "the dump decodes it", lambda: seen.dumped("generation", generation=1, cause="JOIN_TIMEOUT")


# An assignor of the consumer protocol.


def joined(client: Client, member: str, assignor: str) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest("g", member, 0, None, None, 60_000, ["t"], None, assignor, [])
    reply = client.ask(request, 1)
    assert isinstance(reply, ConsumerGroupHeartbeatResponse)
    return reply


def partitions_of(reply: ConsumerGroupHeartbeatResponse) -> int:
    return -1 if reply.assignment is None else sum(len(topic.partitions) for topic in reply.assignment.topic_partitions)


def program_prints(bootstrap: str, line: str) -> bool:
    """Whether the program of docs/assignors.md prints this line."""
    program = listing_named(ROOT / "docs" / "assignors.md", "two_readers.py").replace("127.0.0.1:9092", bootstrap)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS, check=False)
    return line in done.stdout.splitlines()


def assignor() -> Iterator[tuple[str, Question]]:
    name = "single"
    yield "docs/groups.md has its row", lambda: page_has("groups.md", f"| `{name}` | One reader for each topic")
    yield "docs/configuration.md has it among the values", lambda: page_has("configuration.md", "| `group.consumer.assignors`", f"`{name}`")
    yield "docs/configuration.md has it in the default", lambda: page_has("configuration.md", f"| `group.consumer.assignors` | `uniform,range,{name}`")
    with running("--set", "group.consumer.assignment.interval.ms=0", "--set", "group.consumer.min.assignment.interval.ms=0") as (started, _):
        bootstrap = f"127.0.0.1:{started.port}"
        for topic in ("t", "orders"):
            tenure("topic", "create", topic, "--partitions", 4, "--yes", "--bootstrap", bootstrap)
        with Client(started.port) as client:
            first, second = joined(client, "a", name), joined(client, "b", name)
            yield "members may ask for it", lambda: not first.error_code and not second.error_code
            yield "it has an effect", lambda: (partitions_of(first), partitions_of(second)) == (4, 0)
            yield "`group describe` names it", lambda: f"protocol {name}" in tenure("group", "describe", "g", "--bootstrap", bootstrap)
        yield "the program of its page runs", lambda: program_prints(bootstrap, "[0, 4]")


DRILLS: Final[dict[str, Callable[[], Iterator[tuple[str, Question]]]]] = {
    "policy": policy, "cause": cause, "removal": removal, "setting": setting, "topic_setting": topic_setting, "record": record,
    "assignor": assignor,
}


def answers(questions: Iterator[tuple[str, Question]]) -> dict[str, Any]:
    answered: dict[str, Any] = {}
    try:
        for text, question in questions:
            try:
                answered[text] = question()
            except Exception as error:
                answered[text] = f"{type(error).__name__}: {error}"
    except Exception as error:
        answered["what the questions need"] = f"{type(error).__name__}: {error}"
    return answered


if __name__ == "__main__":
    print(json.dumps(answers(DRILLS[sys.argv[1]]())))
