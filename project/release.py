"""Completes dist/ for a release: `python -m project.release dist` writes the bill of materials and the checksums beside the archives.

It also says what a release still lacks: the date in CHANGELOG, commits of everything, the tag.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path

from project.sbom import commit_time, document, git
from tenure import __version__

ROOT = Path(__file__).resolve().parents[1]
CHECKSUMS = "SHA256SUMS"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the bill of materials and the checksums of a release.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    complete(folder)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size / 1024:8.0f} KiB  {path}")
    lacking = [*lacks_in_changelog((ROOT / "CHANGELOG.md").read_text()), *lacks_in_repository()]
    print(f"not yet the release of {__version__}: {'; '.join(lacking)}" if lacking else f"ready to publish: {__version__}")
    return 0


def complete(folder: Path) -> None:
    bill = folder / f"tenure-{__version__}.cdx.json"
    bill.write_text(json.dumps(document(commit_time()), indent=2) + "\n")
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != CHECKSUMS)
    (folder / CHECKSUMS).write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files))


def lacks_in_changelog(text: str) -> list[str]:
    first = next((line for line in text.splitlines() if line.startswith("## ")), "")
    if re.fullmatch(rf"## {re.escape(__version__)}, \d{{4}}-\d\d-\d\d", first):
        return []
    return [f"CHANGELOG.md begins with {first!r} in place of '## {__version__}, YYYY-MM-DD'"]


def lacks_in_repository() -> list[str]:
    if git("status", "--porcelain"):
        return ["changes are not committed"]
    tag = f"v{__version__}"
    if not (commit := git("rev-parse", "HEAD")) or git("rev-list", "-1", tag) != commit:
        return [f"the tag {tag} is not at this commit"]
    return []


if __name__ == "__main__":
    sys.exit(main())
