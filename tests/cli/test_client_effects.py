"""Which requests may be sent again, and which may have taken effect without an answer: each that the command sends has a row."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cli
from cli.arguments import addresses
from cli.client import Cluster, Exit, Failure, patience
from cli.client.api_names import OTHERS
from cli.client.effects import EFFECTS, Unanswered, effect_of
from protocol.apis import APIS
from protocol.message import Message
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tests.cli.fake_brokers import Answer, Close, FakeBroker, metadata_of

pytestmark = pytest.mark.once  # no dependence on the Python version

METADATA, COMMIT = 3, 8


def imported_requests() -> set[str]:
    """The requests that modules of the command import."""
    names: set[str] = set()
    for path in Path(cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("protocol.messages."):
                classes = [getattr(import_module(node.module), entry.name) for entry in node.names]
                names |= {kind.__name__.removesuffix("Request") for kind in classes if hasattr(kind, "API_KEY") and kind.__name__.endswith("Request")}
    return names


def test_each_request_of_the_command_has_a_row() -> None:
    requests = imported_requests()
    assert len(requests) > 25
    assert requests - EFFECTS.keys() == set()


def test_each_row_is_about_a_request_of_kafka() -> None:
    assert EFFECTS.keys() - {api.name for api in APIS.values()} - set(OTHERS.values()) == set()


@pytest.mark.parametrize(("request_", "repeatable", "changes"), [
    (DescribeQuorumRequest(), True, False),
    (OffsetCommitRequest(), True, True),
    (JoinGroupRequest(), False, False),
    (CreateTopicsRequest([], 0, False), False, True),
    (CreateTopicsRequest([], 0, True), True, False),  # only asks whether it would be accepted
])  # fmt: skip
def test_the_two_facts_are_independent(request_: Message, repeatable: bool, changes: bool) -> None:
    assert effect_of(request_) == (repeatable, changes)


def test_a_commit_is_repeated_and_its_last_failure_says_that_it_may_have_taken_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.002)

    def lose(request: Any, version: int) -> Message:
        raise Close

    with FakeBroker() as broker:
        broker.answers = {METADATA: metadata_of(broker), COMMIT: lose}
        with Cluster(addresses(broker.address), 0.5) as cluster, pytest.raises(Failure) as raised:
            cluster.send_to_broker(0, OffsetCommitRequest("g"))
        sent = sum(isinstance(request, OffsetCommitRequest) for request, _ in broker.requests)
        assert sent > 1
        assert isinstance(raised.value, Unanswered)
        assert raised.value.exit_code == Exit.UNREACHABLE
        assert raised.value.line.endswith("it may have taken effect: check before trying again")
        answers: list[Answer] = [lose, lambda request, version: OffsetCommitResponse()]
        broker.answers[COMMIT] = lambda request, version: answers.pop(0)(request, version)
        with Cluster(addresses(broker.address), 5) as cluster:
            assert cluster.send_to_broker(0, OffsetCommitRequest("g")).topics == []


def test_an_unanswered_question_changes_nothing() -> None:
    with FakeBroker() as broker:
        broker.answers = {METADATA: metadata_of(broker), DescribeQuorumRequest.API_KEY: lambda request, version: None}
        with Cluster(addresses(broker.address), 0.3) as cluster, pytest.raises(Failure) as raised:
            cluster.send_to_any(DescribeQuorumRequest())
    assert raised.value.line == f"{broker.address} does not answer DescribeQuorum within 0.3 s"
