"""Write a generated page, or one with generated parts; with --check, compare it with the file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

PART = re.compile(r"(<!-- GENERATED (\w+) [^>]*-->\n).*?(<!-- END \2 -->)", re.DOTALL)


def with_parts(page: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """The page with its generated parts anew."""
    assert [part for _, part, _ in PART.findall(page)] == [*parts], "the page lost one of its generated parts"
    return PART.sub(lambda match: match[1] + parts[match[2]]() + match[3], page)


def write_or_check(page: Path, text: str, source: str) -> int:
    """Write or check the page; return the exit code. `source`: what the page is made from, with a verb, for the error "PAGE is not what SOURCE"."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        print(f"docs/{page.name} is not what {source}: make generate", file=sys.stderr)
        return 1
    return 0
