"""Five kills of the soak of records; `make soak` does fifty and more."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import cli
from tests.soak.record_campaign import RecordCampaign, RecordPlan
from tests.soak.world import World

pytestmark = pytest.mark.once

KILLS = 5


def test_five_kills_lose_no_record_and_repeat_none(tmp_path: Path) -> None:
    plan = RecordPlan(KILLS, seed=random.randrange(1 << 32), producers=3, partitions=3)
    world = World(tmp_path / "data")
    campaign = RecordCampaign(world, plan)
    try:
        ledger = asyncio.run(campaign.run())
        assert not ledger.wrong, f"seed {plan.seed}: {ledger.wrong}; {campaign.summary()}"
        assert world.stop() == 0
    finally:
        world.kill_if_alive()
    assert campaign.kills == KILLS
    # It is no soak when nothing happens.
    assert ledger.counts["acknowledged"] > 50 * KILLS, campaign.summary()
    assert ledger.counts["read again"] > 50 * KILLS, campaign.summary()
    assert cli.main(["log", "verify", str(tmp_path / "data")]) == 0
