"""A rolling restart under load: each node is drained, stopped and restarted, and no client notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.members import AIOKAFKA, CONFLUENT, KAFKA_PYTHON
from tests.nodes.campaign import Campaign

pytestmark = [pytest.mark.clients, pytest.mark.once]


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    campaign = Campaign(tmp_path, 7, (KAFKA_PYTHON, AIOKAFKA, CONFLUENT), print)
    yield campaign
    campaign.close()


def test_a_rolling_restart_costs_no_rebalance_and_no_error(campaign: Campaign) -> None:
    nodes = campaign.nodes
    probe = campaign.begin()
    before = {id: nodes.pid(id) for id in nodes.ids}
    for id in nodes.ids:
        campaign.restart_in_order(id, probe)
    assert all(nodes.pid(id) != pid for id, pid in before.items())
    campaign.end()
    assert campaign.violations == []
    assert nodes.stop() == 0
