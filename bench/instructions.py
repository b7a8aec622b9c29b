"""Instructions per request in the broker's process, without the kernel's, counted by callgrind: unaffected by other load on the machine.

    .venv/bin/python -m bench.instructions heartbeat-200 commit-1    # these rows; plain and compiled

The broker runs in valgrind, some fifty times slower, with few connections and three loads: a warm-up, a short load and a long load. The
instructions of the long load minus those of the short load, divided by the difference of their requests, exclude joining and the building
of fast paths.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.load import LoadError, generate
from bench.machine import Cores, choose_cores
from bench.native import ROOT, BuildError, Tools, tools
from bench.rows import DATA_ROWS, LOAD_ROWS, DataRow, LoadRow
from bench.servers import ServerError, broker

SHORT_SECONDS, LONG_SECONDS = 2.0, 8.0
CONNECTIONS = "20"  # a tenth of those in the rows: joining them takes most of the time
DUMP_SECONDS = 60.0
COUNTED = (
    "heartbeat-200", "heartbeat-turns", "commit-1", "commit-10", "commit-100", "fetch-10", "commit-turns", "fetch-turns", "storm",
    "storm-turns", "metadata", "produce-small", "produce-turns",
)  # fmt: skip
ROWS = {row.name: row for row in LOAD_ROWS} | {row.name: row for row in DATA_ROWS}
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)$", re.MULTILINE)


def available() -> bool:
    return shutil.which("valgrind") is not None


def per_request(built: Tools, cores: Cores, row: LoadRow | DataRow, packages: Path = ROOT) -> float:
    """Instructions per request of this row."""
    program, more = (built.kgload, row.broker) if isinstance(row, LoadRow) else (built.kgdata, ())
    with tempfile.TemporaryDirectory(prefix="tenure-instructions-") as folder:
        prefix = ("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/total")
        with broker(cores.server, packages=packages, prefix=prefix, may_end=True) as server:
            requests = []
            for seconds in (SHORT_SECONDS, SHORT_SECONDS, LONG_SECONDS):
                arguments = (*_fewer(row.arguments), *more, "--topic", row.name, "-W", "0")
                requests.append(generate(program, cores.generator, server, arguments, seconds)["requests"])
                subprocess.run(["callgrind_control", "--dump", str(server.pid)], check=True, capture_output=True, timeout=DUMP_SECONDS)
            _, short, long = (_total(Path(f"{folder}/total.{number}")) for number in (1, 2, 3))
            server.process.kill()  # a graceful stop takes long in valgrind
    if requests[2] <= requests[1]:
        raise LoadError("the longer load had no more requests than the shorter one")
    return float((long - short) / (requests[2] - requests[1]))


def _total(dump: Path) -> int:
    """Instructions since the previous dump."""
    total = _TOTAL.search(dump.read_text())
    if total is None:
        raise ServerError(f"callgrind wrote no total into {dump.name}")
    return int(total[1])


def _fewer(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The row's arguments with a tenth of its connections and members."""
    fewer = {"200": CONNECTIONS, "2000": CONNECTIONS + "0"}
    return tuple(fewer.get(word, word) if before in ("-c", "-m") else word for before, word in zip(("", *arguments), arguments, strict=False))


def table(counts: dict[str, dict[str, float]]) -> Iterator[str]:
    yield f"{'instructions per request, without the kernel':45} {'plain':>9} {'compiled':>9} {'ratio':>6}"
    for name, count in counts.items():
        cells = [f"{count[build]:9.0f}" if build in count else f"{'-':>9}" for build in ("plain", "compiled")]
        ratio = f"{count['compiled'] / count['plain']:6.2f}" if len(count) == 2 else f"{'-':>6}"
        yield f"{name:45} {' '.join(cells)} {ratio}"


def count(names: list[str], builds: dict[str, Path], report_error: Callable[[str], None]) -> dict[str, dict[str, float]]:
    built, cores = tools(), choose_cores()
    total: dict[str, dict[str, float]] = {}
    for row in [ROWS[name] for name in names]:
        total[row.name] = {}
        for build, packages in builds.items():
            try:
                total[row.name][build] = per_request(built, cores, row, packages)
            except (LoadError, ServerError) as error:
                report_error(f"{row.name}, {build}: {error}")
    return total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description="Instructions per request, plain and compiled.")
    parser.add_argument("rows", nargs="*", help=f"some of {', '.join(COUNTED)} (all of these)")
    parser.add_argument("--compiled", type=Path, metavar="FOLDER", help="a compiled copy (build/compiled if it exists)")
    options = parser.parse_args()
    if not available():
        print("bench: there is no valgrind", file=sys.stderr)
        return 2
    unknown = [name for name in options.rows if name not in COUNTED]
    if unknown:
        parser.error(f"no row is called {unknown[0]}")
    compiled = (options.compiled or ROOT / "build" / "compiled").absolute()
    builds = {"plain": ROOT} | ({"compiled": compiled} if compiled.exists() else {})
    try:
        total = count(options.rows or list(COUNTED), builds, lambda line: print(f"bench: {line}", file=sys.stderr))
    except BuildError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print("\n".join(table(total)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
