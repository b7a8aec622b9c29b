"""The soak with a few kills; `make soak` does a hundred and more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import cli
from tests.soak.campaign import Campaign, Plan
from tests.soak.consumers import consumed
from tests.soak.record_campaign import RecordCampaign, RecordPlan
from tests.soak.soak_broker import SoakBroker

pytestmark = pytest.mark.once

GROUP_KILLS, RECORD_KILLS = 4, 2


def of_groups(broker: SoakBroker, seed: int) -> Campaign:
    return Campaign(broker, Plan(GROUP_KILLS, seed, groups=4, session_ms=4_000, rebalance_ms=3_000))


def of_records(broker: SoakBroker, seed: int) -> RecordCampaign:
    return RecordCampaign(broker, RecordPlan(RECORD_KILLS, seed, producers=3, partitions=3))


@pytest.mark.parametrize(
    ("make_campaign", "kills", "counts"),  # `counts`: the least number of each event, so that the campaign has tested enough
    [
        (of_groups, GROUP_KILLS, {"acknowledged": 20, "fetched": 5}),
        (of_records, RECORD_KILLS, {"acknowledged": 50, "read again": 50}),
    ],
)
def test_kills_break_no_promise(make_campaign: Callable[[SoakBroker, int], Campaign | RecordCampaign], kills: int, counts: dict[str, int], tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    broker = SoakBroker(tmp_path / "data")
    campaign = make_campaign(broker, seed)
    try:
        asyncio.run(campaign.run())
        assert not campaign.ledger.violations, f"seed {seed}: {campaign.ledger.violations}; {campaign.summary()}"
        assert broker.stop() == 0
    finally:
        broker.kill_if_alive()
    assert campaign.kills == kills
    for action, least in counts.items():
        assert campaign.ledger.counts[action] > least * kills, campaign.summary()
    assert cli.main(["log", "verify", str(tmp_path / "data")]) == 0


@pytest.mark.clients
def test_members_that_join_and_leave_print_each_record_once() -> None:
    result = consumed(10, 7, kills=False)
    assert result.violations == []
    assert result.produced == 2_000


@pytest.mark.clients
def test_members_that_are_killed_lose_no_record() -> None:
    result = consumed(6, 5, kills=True)
    assert result.violations == []
    assert result.kills
