"""The reasons of docs/clients.md, from the lists in known/: `python -m tests.suites.page` writes them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator

from tests.suites.known import FOLDER
from tests.suites.suite import ROOT

PAGE = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- written by `python -m tests.suites.page` -->\n", "<!-- until here -->\n"
WHOSE = {"tenure": "Tenure", "nodes": "several nodes of Tenure", "kafka": "Apache Kafka", "both": "both"}
NAMED = 4  # if several tests have the same reason, only the first are named


def reasons() -> Iterator[str]:
    for file in sorted(FOLDER.glob("*.toml")):
        yield f"### {file.stem}\n\n| with | tests | why |\n|---|---|---|\n"
        for group in tomllib.loads(file.read_text()).get("failing", []):
            tests = group["tests"]
            named = ", ".join(f"`{test}`" for test in tests[:NAMED]) + (f" and {len(tests) - NAMED} more" if len(tests) > NAMED else "")
            whose = WHOSE[group.get("with", "tenure")] + (", at times" if group.get("sometimes") else "")
            yield f"| {whose} | {named} | {' '.join(group['reason'].split())} |\n"
        yield "\n"


def written(page: str) -> str:
    before, _, from_begin = page.partition(BEGIN)
    _, _, after = from_begin.partition(END)
    return f"{before}{BEGIN}\n{''.join(reasons())}{END}{after}"


def main() -> int:
    PAGE.write_text(written(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
