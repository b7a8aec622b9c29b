"""`make soak ARGS="--kills 100 --seed 7"`: kills the broker under load and prints the result; exit code 1 if a guarantee was broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.running import ROOT
from tests.soak.campaign import FLUSHES, Campaign, Plan
from tests.soak.consumers import consumers_break_promise
from tests.soak.control import BROKERS, CLUSTERS, control_breaks_promise
from tests.soak.ledger import Ledger
from tests.soak.record_campaign import TOPIC, RecordCampaign, RecordPlan
from tests.soak.record_ledger import RecordLedger
from tests.soak.segments import unreadable
from tests.soak.soak_broker import SoakBroker
from tests.soak.topics import topics_break_promise

GROUP_KILLS, RECORD_KILLS, HISTORIES, CONSUMER_ACTIONS = 100, 50, 50, 60


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=None, help=f"of each part (groups {GROUP_KILLS}, records {RECORD_KILLS}); topics: histories ({HISTORIES}); consume: actions ({CONSUMER_ACTIONS}); control: brokers ({BROKERS}), and fifty clusters for each")
    parser.add_argument("--seed", type=int, default=None, help="the same seed does the same actions; moments differ by what the machine does")
    parser.add_argument("--only", choices=("groups", "records", "topics", "consume", "control"), default=None, help="one part alone")
    parser.add_argument("--groups", type=int, default=9)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--flush", choices=("both", *FLUSHES), default="both", help="offsets.flush; both: drawn anew for each run of the broker")
    parser.add_argument("--scale", action="store_true", help="instead: the tests of scale in their full form, a hundred thousand members")
    options = parser.parse_args(arguments)
    if options.scale:
        scale = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-s", "-o", "faulthandler_timeout=0", "tests/broker/test_scale.py"]
        return subprocess.run(scale, cwd=ROOT, env=os.environ | {"SCALE": "full"}, check=False).returncode
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    failed = False
    if options.only in (None, "topics"):
        failed |= topics_break_promise(options.kills or HISTORIES, seed, tell)
    if options.only in (None, "consume"):
        failed |= consumers_break_promise(options.kills or CONSUMER_ACTIONS, seed, tell)
    if options.only in (None, "control"):
        brokers = options.kills or BROKERS
        failed |= control_breaks_promise(brokers, brokers * CLUSTERS // BROKERS, seed, tell)
    if options.only in (None, "groups"):
        plan = Plan(options.kills or GROUP_KILLS, seed, options.groups, options.flush, silent_deaths=True)
        failed |= campaign_breaks_promise("groups", lambda broker: Campaign(broker, plan, tell), plan)
    if options.only in (None, "records"):
        records = RecordPlan(options.kills or RECORD_KILLS, seed, options.producers)
        failed |= campaign_breaks_promise("records", lambda broker: RecordCampaign(broker, records, tell), records)
    return failed


def tell(line: str) -> None:
    print(line, flush=True)


def campaign_breaks_promise(name: str, begun: Callable[[SoakBroker], Campaign | RecordCampaign], plan: Plan | RecordPlan) -> bool:
    """Whether a guarantee was broken."""
    tell(f"soak: {name}, {plan.kills} kills, seed {plan.seed}")
    data = Path(tempfile.mkdtemp(prefix="tenure-soak-"))
    broker = SoakBroker(data)
    campaign = begun(broker)
    begin = time.monotonic()
    try:
        running: Coroutine[Any, Any, Ledger | RecordLedger] = campaign.run()
        ledger = asyncio.run(running)
    finally:
        broker.kill_if_alive()
    tell(campaign.summary())
    wrong = list(ledger.violations)
    if isinstance(campaign, RecordCampaign):
        wrong += unreadable(data, TOPIC)
    for problem in wrong:
        print(f"BROKEN {problem}")
    print(f"soak: {name}, {campaign.kills} kills in {time.monotonic() - begin:.0f} s, {len(wrong)} broken promises, seed {plan.seed}")
    if wrong:
        print(f"soak: the data directory is left in {data}")
    else:
        shutil.rmtree(data)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
