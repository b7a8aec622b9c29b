"""Write a generated page or, with --check, compare it with the file."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str, source: str) -> int:
    """Write or check the page; return the exit code. `source`: what the page is made from, with a verb, for the error "PAGE is not what SOURCE"."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        print(f"docs/{page.name} is not what {source}: make generate", file=sys.stderr)
        return 1
    return 0
