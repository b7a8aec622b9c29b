"""Makes docs/report.png, the first screen of the report on the week of `make demo`, in Chromium: python -m project.picture [--check|--again]

The picture says in its metadata what it was made of: a digest of the demo and of the report's template. `--check` compares it, without a browser.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from struct import pack, unpack
from typing import Final
from zlib import crc32

from project import browser

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "report.png"
SEED: Final = 0
DAYS: Final = 7
WIDTH, HEIGHT = 1200, 1010
INPUTS: Final = ("pipeline/demo/*.py", "pipeline/report/*.html", "pipeline/report/*.css", "pipeline/report/*.js", "project/picture.py")

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
HEADER_BYTES: Final = 8 + 25  # with the signature
KEYWORD: Final = b"made of\0"


def digest() -> str:
    """A digest of what the picture is made of, without the analysis: computing its figures takes a minute, so `--again` is for a change of those."""
    made_of = hashlib.sha256()
    for file in sorted(path for pattern in INPUTS for path in ROOT.glob(pattern)):
        made_of.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return made_of.hexdigest()


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The type and the content of each chunk."""
    at = len(SIGNATURE)
    while at < len(png):
        size, kind = unpack(">I4s", png[at : at + 8])
        yield kind, png[at + 8 : at + 8 + size]
        at += 12 + size


def text_in(png: bytes) -> str:
    """What a picture says it was made of."""
    return next((content.removeprefix(KEYWORD).decode() for kind, content in chunks(png) if kind == b"tEXt" and content.startswith(KEYWORD)), "")


def with_text(png: bytes, text: str) -> bytes:
    """The picture with this text in front of all others."""
    content = b"tEXt" + KEYWORD + text.encode()
    return png[:HEADER_BYTES] + pack(">I", len(content) - 4) + content + pack(">I", crc32(content)) + png[HEADER_BYTES:]


def write_report(folder: Path) -> Path:
    """Write the demo's week, as a broker leaves it, and the report on it."""
    from pipeline.demo import write_world  # not needed for --check

    write_world(folder / "data", SEED, DAYS)
    report = folder / "report.html"
    tenure = [sys.executable, "-P", "-m", "tenure", "analyze", "run", "--master", "none", "--quiet"]
    subprocess.run([*tenure, "--offsets", folder / "data", "--out", folder / "tables", "--report", report], check=True, cwd=ROOT)
    return report


def take_picture(program: str, report: Path) -> bytes:
    """The first screen of the report, with its digest."""
    picture = report.with_suffix(".png")
    with browser.browser(program) as page:
        page.ask("Emulation.setScrollbarsHidden", hidden=True)
        page.open(report, width=WIDTH, height=HEIGHT)
        page.screenshot(picture, whole=False)
    return with_text(picture.read_bytes(), digest())


def main() -> int:
    fresh = PICTURE.exists() and text_in(PICTURE.read_bytes()) == digest()
    if "--check" in sys.argv[1:]:
        if not fresh:
            print(f"{PICTURE.relative_to(ROOT)} is not what pipeline/demo and pipeline/report make: make generate (needs Chromium)", file=sys.stderr)
        return 0 if fresh else 1
    if fresh and "--again" not in sys.argv[1:]:
        return 0
    program = browser.find()
    if program is None:
        print(f"{PICTURE.relative_to(ROOT)} stays as it is: no Chromium on PATH (Debian: apt install chromium)", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_bytes(take_picture(program, write_report(Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
