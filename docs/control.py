"""Writes the table of calls in docs/control.md from the verbs: python -m docs.control [--check]"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from broker.control.table import VERBS
from broker.control.verb import Verb
from docs.page import with_parts, write_or_check

PAGE = Path(__file__).with_suffix(".md")


def calls() -> str:
    return "\n".join(["| call | does | for example |", "|---|---|---|", *map(row, VERBS)]) + "\n"


def row(verb: Verb) -> str:
    path = verb.path.removeprefix("/v1/clusters/{cluster}").removeprefix("/v1") or "/"
    example = f"`{json.dumps(verb.example)}`" if verb.example else ", ".join(f"`?{field.name}=`" for field in verb.fields) if verb.method == "GET" else ""
    return f"| `{verb.method} {path}` | {verb.text.replace('|', chr(92) + '|')} | {example} |"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, with_parts(PAGE.read_text(), {"calls": calls}), "broker/control/verbs/ says"))
