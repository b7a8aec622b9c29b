"""Ten kills of the soak; `make soak` does a hundred and more."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import cli
from tests.soak.campaign import Campaign, Plan
from tests.soak.world import World

pytestmark = pytest.mark.once

KILLS = 10


def test_ten_kills_break_no_promise(tmp_path: Path) -> None:
    plan = Plan(KILLS, seed=random.randrange(1 << 32), groups=4, session_ms=4_000, rebalance_ms=3_000)
    world = World(tmp_path / "data")
    campaign = Campaign(world, plan)
    try:
        ledger = asyncio.run(campaign.run())
        assert not ledger.wrong, f"seed {plan.seed}: {ledger.wrong}; {campaign.summary()}"
        assert world.stop() == 0
    finally:
        world.kill_if_alive()
    assert campaign.kills == KILLS
    # It is no soak when nothing happens.
    assert ledger.counts["acknowledged"] > 20 * KILLS, campaign.summary()
    assert ledger.counts["fetched"] > 5 * KILLS, campaign.summary()
    assert cli.main(["log", "verify", str(tmp_path / "data")]) == 0
