"""The same questions to this broker and to Apache Kafka: the replies are equal, but for the deviations listed here.

docs/differences.md lists them for users.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from tests.clients.group_questions import groups
from tests.clients.peers import Peer, await_coordinator, differences
from tests.clients.questions import everything
from tests.kafka_process import kafka
from tests.running import ROOT, broker

pytestmark = pytest.mark.kafka


class Deviation(NamedTuple):
    """An intended difference: patterns of the question's name, of the path in the reply, and of our value."""

    question: str
    place: str
    why: str
    ours: str = ".*"

    def explains(self, question: str, place: str, ours: Any) -> bool:
        return bool(re.match(self.question, question) and re.fullmatch(self.place, place) and re.fullmatch(self.ours, str(ours), re.DOTALL))


API_VERSIONS_ASKED = "versions|client id|bytes after the body"
DEVIATIONS = [
    Deviation(API_VERSIONS_ASKED, r"api_keys\[\d+\]", "ApiVersions lists only the APIs that Tenure serves", "absent"),
    Deviation(API_VERSIONS_ASKED, r"api_keys\[(18|42)\].max_version", "ApiVersions 5 and DeleteGroups 3 are served, which are new in Kafka 4.4", "5|3"),
    Deviation(
        API_VERSIONS_ASKED,
        r"(supported|finalized)_features\[.*\]|supported_features|finalized_features_epoch",
        "of Kafka's features only group.version is announced: the others belong to what is not served",
        r"absent|0|\[\]",
    ),
    Deviation(r"versions, newer and empty v\d", "", "an ApiVersions of a newer version is answered whatever its content is"),
    Deviation("versions, newer.* v-", "", "a negative version of ApiVersions closes the connection", "closed"),
    Deviation("client id of length -2", "", "a client id of a length below -1 closes the connection, where Kafka reads null", "closed"),
    Deviation("create", r"topics.*\.topic_id", "a topic that was only validated has no id, where Kafka generates one", "no id"),
    Deviation("create", r".*\[min.insync.replicas\].config_source", "min.insync.replicas is shown as a default, not as set for the cluster", "5"),
    Deviation("create, 1 partitions, 2 replicas", r".*\.error_message", "the message about too many replicas gives the number of brokers"),
    Deviation("create, 10000 partitions", r"topics\[counts\].*", "10,000 partitions in one request are possible, where Kafka ends at 9,999"),
    Deviation("create, min.cleanable.dirty.ratio", r".*\.error_message", "a number with a fraction is written as Python writes it"),
    Deviation("create, .* of (the greatest|great) length", "topics.*", "a message too long for a reply is cut, where Kafka fails with error -1"),
    Deviation(
        "metadata, missing ones, to be created|metadata, a missing one v[0-3]",
        r"topics\[(auto|missing)-.*",
        "Metadata that creates a topic is answered when the topic is durable, where Kafka answers error 3 and creates it afterwards",
    ),
    Deviation(
        "metadata by id, neither id nor name v1[23]",
        "brokers|cluster_id|controller_id|error_code|topics.*",
        "a topic with neither name nor id is an unknown id, where Kafka fails with error -1",
    ),
    Deviation(
        "(metadata of a name|coordinator of a key) that grows", "", "a reply that cannot be written closes the connection, where Kafka never answers", "closed"
    ),
    Deviation("coordinator, (kind|share)", r".*error_message", "the standard texts of errors differ from Kafka's"),
    Deviation(
        "coordinator, transaction",
        r"(coordinators\[t?\]\.)?(error_code|error_message|node_id|host|port)",
        "there are no transactions: FindCoordinator answers the final error 53",
        "53|transactions are not served by this broker|-1|",
    ),
    Deviation("coordinator, share 'g:AAAAAAA' v6", ".*error_code", "there are no share groups", "42"),
    Deviation("metadata.*", r"topics\[__(transaction|share_group)_state\]", "the topics behind transactions and share groups never appear", "absent"),
]


def test_every_reply_is_kafkas_but_for_the_listed_deviations() -> None:
    unexplained, deviations_met = [], set()
    settings = {"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "6000"}
    with (
        kafka(**{name.replace(".", "_"): value for name, value in settings.items()}) as port,
        broker("--profile", "test", *[part for name, value in settings.items() for part in ("--set", f"{name}={value}")]) as ours,
    ):
        peers = (Peer(ours.port), Peer(port))
        await_coordinator(peers[1])
        for question in (*everything(), *groups()):
            for place, mine, kafkas in differences(*[peer.ask(question) for peer in peers]):
                explained = [deviation for deviation in DEVIATIONS if deviation.explains(question.name, place, mine)]
                deviations_met.update(explained)
                if not explained:
                    unexplained.append(f"{question.name} | {place[-80:]} | ours {str(mine)[:200]!r} | Kafka's {str(kafkas)[:200]!r}")
        for peer in peers:
            peer.close()
    assert not unexplained, f"{len(unexplained)} differences:\n" + "\n".join(unexplained[:50])
    assert deviations_met == set(DEVIATIONS), f"deviations that no longer apply: {set(DEVIATIONS) - deviations_met}"


def test_every_deviation_is_documented() -> None:
    documented = " ".join((ROOT / "docs" / "differences.md").read_text().split())
    missing = [deviation.why for deviation in DEVIATIONS if deviation.why not in documented]
    assert not missing
