"""`topics.watch`: new partitions cause one rebalance at once; whether it assigns them depends on the metadata that the leader has cached."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tests.clients.members import KINDS, ClientKind
from tests.clients.membership import TOPIC, Group
from tests.clients.policies.scenarios import close_all, set_policies
from tests.running import Client, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

PARTITIONS, GROWN = 6, 9
REFRESH_METADATA_BY_THEMSELVES = {"kafka-python", "confluent-kafka"}  # soon; the others after `metadata.max.age.ms`


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_members_rejoin_at_once_when_their_topic_grows(kind: ClientKind, make_group: Callable[..., Group]) -> None:
    group = make_group(group_initial_rebalance_delay_ms="500")
    set_policies(group.port, group.name, {"topics.watch": "true"})
    members = [group.start(kind, instance) for instance in ("a", "b")]
    group.await_settled(*members)
    before = group.generation()
    with Client(group.port) as client:
        assert not client.ask(CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, GROWN, None)], 5000, False), 3).results[0].error_code
    wait_until(lambda: group.state_changes()[-1]["generation"] > before and group.describe()[0] == "Stable", 20)
    assert "topics_changed" in [line["cause"] for line in group.state_changes()]
    if str(kind) in REFRESH_METADATA_BY_THEMSELVES:
        wait_until(
            lambda: sum(len(member.partitions) for member in members) == GROWN,
            20,
            state=lambda: ([member.partitions for member in members], group.describe(), group.state_changes()),
        )
    close_all(members)
