"""What every generated page does when it is run: it is written, or with --check compared with what stands there."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str, source: str) -> int:
    """The exit code; `source` says whose words the page is to have."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        print(f"docs/{page.name} is not what {source}: make generate", file=sys.stderr)
        return 1
    return 0
