"""`make demo`: a made-up week as a data directory, its report, and a broker that serves it until it is interrupted.

Everything is under build/demo: `data` is a broker's data directory, and `data/truth.json` has the real events of that week.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from pipeline.demo import write_world
from pipeline.demo.topics import DAY_MS
from pipeline.demo.world import TRUTH

FOLDER: Final = Path("build/demo")
DAYS: Final = 7


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo", description="Write a made-up week and serve it.")
    parser.add_argument("--listen", default="127.0.0.1:19092", help="where the broker listens; default: 127.0.0.1:19092")
    parser.add_argument("--seed", type=int, default=0, help="another week; default: 0")
    parser.add_argument("--master", default="none", help="where the analysis runs: none (this process, the default), or a Spark master such as local[*]")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    data = FOLDER / "data"
    print(f"demo: writing seven days of thirteen services to {data}", flush=True)
    # The week ends at the last midnight, so that all its offsets are younger than a broker's retention of a week.
    end_ms = int(time.time() * 1000) // DAY_MS * DAY_MS
    write_world(data, options.seed, DAYS, start_ms=end_ms - DAYS * DAY_MS)
    tenure = str(Path(sys.executable).with_name("tenure"))
    print(f"demo: the true events of that week: {data / TRUTH}")
    # Analyze before the broker serves: the made-up members have no clients, so their sessions soon expire there.
    report = FOLDER / "report.html"
    analyze = [tenure, "analyze", "run", "--offsets", str(data), "--out", str(FOLDER / "tables"), "--report", str(report), "--master", options.master]
    if subprocess.run(analyze, check=False).returncode:
        sys.exit("demo: the analysis failed")
    print(f"demo: why its groups rebalance: open {report.resolve().as_uri()}")
    print(f"demo: a broker serves it on {options.listen}; Ctrl-C ends it. Beside it, in another terminal:")
    print(f"    {tenure} group list --bootstrap {options.listen}")
    print(f"    {tenure} group history checkout --bootstrap {options.listen}", flush=True)
    os.execv(tenure, [tenure, "serve", "--data", str(data), "--listen", options.listen])


if __name__ == "__main__":
    main()
