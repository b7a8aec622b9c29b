"""`make demo`: a made-up week as a data directory, its report, and a broker that serves it, with living members, until it is interrupted.

Everything is under build/demo: `data` is a broker's data directory, and `data/truth.json` has the real events of that week.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from broker.settings.endpoints import parse_endpoint, reachable_host
from cli.client import name_of
from pipeline.demo import write_world
from pipeline.demo.topics import DAY_MS
from pipeline.demo.world import TRUTH
from project.live_members import LiveMember, living

FOLDER: Final = Path("build/demo")
DAYS: Final = 7


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Write a made-up week and serve it.")
    parser.add_argument("--listen", default="127.0.0.1:19092", help="where the broker listens; default: 127.0.0.1:19092")
    parser.add_argument("--seed", type=int, default=0, help="another week; default: 0")
    parser.add_argument("--master", default="none", help="where the analysis runs: none (this process, the default), or a Spark master such as local[*]")
    parser.add_argument("--hostile", action="store_true", help="two groups more, with names that break careless pages and terminals")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    data = FOLDER / "data"
    print(f"demo: writing seven days of deploys, crashes and scaling to {data}", flush=True)
    # The week ends at the last midnight, so that all its offsets are younger than a broker's retention of a week.
    end_ms = int(time.time() * 1000) // DAY_MS * DAY_MS
    truth = write_world(data, options.seed, DAYS, start_ms=end_ms - DAYS * DAY_MS, hostile=options.hostile)
    tenure = str(Path(sys.executable).with_name("tenure"))
    print(f"demo: the true events of that week: {data / TRUTH}")
    # Analyze before the broker serves, and so adds to the logs.
    report = FOLDER / "report.html"
    analyze = [tenure, "analyze", "run", "--offsets", str(data), "--out", str(FOLDER / "tables"), "--report", str(report), "--master", options.master]
    if subprocess.run(analyze, check=False).returncode:
        sys.exit("demo: the analysis failed")
    members = living(truth)
    print(f"demo: why its groups rebalance: open {report.resolve().as_uri()}")
    print(f"demo: a broker serves it on {options.listen}, and its {len(members)} members live on; Ctrl-C ends all. Beside it, in another terminal:")
    print(f"    {tenure} group list --bootstrap {options.listen}")
    print(f"    {tenure} group history checkout --bootstrap {options.listen}", flush=True)
    return asyncio.run(serve([tenure, "serve", "--data", str(data), "--listen", options.listen, "--exit-with-parent"], options.listen, members))


async def serve(command: list[str], listen: str, members: list[LiveMember]) -> int:
    """Run the broker with its members until it ends, or until a signal ends both; return its exit code."""
    host, port = parse_endpoint(listen)
    broker = await asyncio.create_subprocess_exec(*command, process_group=0)  # Ctrl-C reaches this process alone, which ends the broker
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, broker.terminate)
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(member.run(reachable_host(host), port, gone)) for member in members]
    try:
        return await broker.wait()
    finally:
        for task in tasks:
            task.cancel()


def gone(member: LiveMember, code: int) -> None:
    print(f"demo: {member.member_id} of {member.group} is no member any more ({name_of(code)})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
