"""`make soak ARGS="--kills 100 --seed 7"`: kills the broker under load and says what it found; exit code 1 when a promise was broken."""

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
from pathlib import Path

from tests.running import ROOT
from tests.soak.campaign import FLUSHES, Campaign, Plan
from tests.soak.world import World


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="the same seed does the same deeds; moments differ by what the machine does")
    parser.add_argument("--groups", type=int, default=9)
    parser.add_argument("--flush", choices=("both", *FLUSHES), default="both", help="offsets.flush; both: drawn anew for each life")
    parser.add_argument("--scale", action="store_true", help="instead: the tests of scale in their full form, a hundred thousand members")
    given = parser.parse_args(arguments)
    if given.scale:
        scale = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-s", "-o", "faulthandler_timeout=0", "tests/broker/test_scale.py"]
        return subprocess.run(scale, cwd=ROOT, env=os.environ | {"SCALE": "full"}, check=False).returncode
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"soak: {given.kills} kills, seed {seed}", flush=True)
    data = Path(tempfile.mkdtemp(prefix="tenure-soak-"))
    world = World(data)
    campaign = Campaign(world, Plan(given.kills, seed, given.groups, given.flush, silent_deaths=True), lambda line: print(line, flush=True))
    begin = time.monotonic()
    try:
        ledger = asyncio.run(campaign.run())
    finally:
        world.kill_if_alive()
    for what in ledger.wrong:
        print(f"BROKEN {what}")
    print(f"soak: {campaign.kills} kills in {time.monotonic() - begin:.0f} s, {len(ledger.wrong)} broken promises, seed {seed}")
    if ledger.wrong:
        print(f"soak: the data directory is left in {data}")
        return 1
    shutil.rmtree(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
