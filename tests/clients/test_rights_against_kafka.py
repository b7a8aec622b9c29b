"""Replies to unauthorized requests: the handlers with a refusing authorizer, and Apache Kafka with the same rules."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from broker.security.authorizer import Authorizer, Operation
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_groups import ListGroupsRequest
from tests.clients.group_questions import commit, delete, describe, fetch, heartbeat, join, leave, offset_delete, sync
from tests.clients.peers import ORDERED, Peer, await_coordinator, differences
from tests.clients.questions import FIND_COORDINATOR, Question, ask, ranges
from tests.kafka_process import kafka
from tests.oracle import kafka_jars
from tests.support import group_harness

pytestmark = pytest.mark.kafka

TOPICS = {"open": 2, "no-read-topic": 2, "no-describe-topic": 2}
WANTED = [("open", (0, 9)), ("no-read-topic", (0, 9)), ("no-describe-topic", (0,)), ("nowhere", (0,)), ("no-read-nowhere", (0,)), ("no-describe-", (0,))]
COMMITTED = [(name, [(partition, 5, "") for partition in partitions]) for name, partitions in WANTED]


def deny(call: Any, operation: Operation, resource: int, name: str) -> bool:
    """The rules of `java/Denying.java`, for our authorizer."""
    return not (name.startswith("no-") and f"-{operation.name.lower()}-" in name)


class HarnessPeer(Peer):
    """Calls the handlers as `GroupClient` calls a broker."""

    def __init__(self, harness: group_harness.GroupHarness) -> None:
        self.ids = {}
        self.port = group_harness.DIALLED.port
        self.cluster_id = ""
        self._peer = group_harness.GroupClient(harness)

    def ask(self, question: Question) -> Any:
        frame = question.frame(self.ids)
        self._peer._received = b""
        self._peer.connection.data_received(pack(">i", len(frame)) + frame)
        self._peer._harness.loop.run()
        self._peer._harness.pass_ms(0)
        reply, _ = self.decode(question, self._peer._received[4:])
        return {"version": question.version} | self.plain(reply, ordered=question.key in ORDERED)


def questions() -> Iterator[Question]:
    for version in ranges(11):
        yield join("no-read-g", version)
        yield join("no-read-g", version, "[me]", session=1, title="a short session")
        yield sync("no-read-g", min(version, 5), "[me]", 1)
        yield sync("no-read-g", min(version, 5), "[me]", 1, kind=None, title="no type")
        yield heartbeat("no-read-g", min(version, 4), "[me]", 1)
        yield leave("no-read-g", min(version, 5), ("[me]", None), ("[]", "i"))
    for version in ranges(8):
        yield commit("no-read-g", version, "[]", -1, *COMMITTED)
        yield commit("no-read-g", version, "[]", -1, title="nothing")
        yield commit("g", version, "[]", -1, *COMMITTED)
    for version in ranges(9):
        for group in ("no-describe-g", "g", "no-read-g"):
            yield fetch(version, (group, WANTED), title=f"some of {group}")
            if version >= 2:
                yield fetch(version, (group, None), title=f"every one of {group}")
    for version in (8, 9, 10):
        yield fetch(version, ("no-describe-g", WANTED), ("g", [("open", (0,))]), ("no-describe-g", None), ("nowhere", WANTED), title="several")
    for version in ranges(15):
        for operations in (False, True) if version >= 3 else (False,):
            yield describe(version, "no-describe-g", operations=operations)
            yield describe(version, "no-delete-g", operations=operations)
            yield describe(version, "no-alter_configs-read-g", operations=operations)
    yield offset_delete("no-delete-g", "refused", *WANTED)
    yield offset_delete("g", "some refused", *WANTED)
    yield offset_delete("nowhere", "some refused, no group", *WANTED)
    for version in ranges(16):
        yield ask("list", ListGroupsRequest(), version)
    for version in ranges(42):
        yield delete(version, "no-delete-g")
        yield delete(version, "no-delete-g", "no-delete-h", "no-delete-g")
        yield delete(version, "no-delete-g", "g" if version == 2 else "nowhere", "no-delete-h")
    for version in ranges(10):
        for kind in (0, 1) if version >= 1 else (0,):
            yield ask("coordinator", FindCoordinatorRequest("no-describe-g", kind, ["no-describe-g"] if version >= 4 else []), version)


def test_an_unauthorized_request_is_refused_as_by_kafka(tmp_path: Path) -> None:
    source = Path(__file__).parent / "java" / "Denying.java"
    subprocess.run(["javac", "-cp", f"{kafka_jars()}/*", "-d", str(tmp_path), str(source)], check=True, timeout=60)
    unexplained = []
    with kafka(tmp_path, authorizer_class_name="Denying", offsets_topic_num_partitions="5", group_initial_rebalance_delay_ms="0") as port:
        theirs = Peer(port)
        await_coordinator(theirs)
        created = theirs.client.ask(CreateTopicsRequest([CreatableTopic(name, count, 1, [], []) for name, count in TOPICS.items()], 5000), 7)
        assert {topic.error_code for topic in created.topics} == {0}
        theirs.await_topics([name for name in TOPICS if "describe" not in name])
        harness = group_harness.GroupHarness(Authorizer(deny), topics=TOPICS)
        ours = HarnessPeer(harness)
        ours.ids |= {name: harness.topics.by_name[name].id for name in TOPICS}
        theirs.ids |= {topic.name: topic.topic_id for topic in created.topics}
        for question in questions():
            for place, mine, kafkas in differences(ours.ask(question), theirs.ask(question)):
                in_words_of_our_own = question.key == FIND_COORDINATOR and place.endswith("error_message")
                if not in_words_of_our_own:
                    unexplained.append(f"{question.name} | {place} | ours {mine!r} | Kafka's {kafkas!r}")
        theirs.close()
    assert not unexplained, "\n".join(unexplained)
