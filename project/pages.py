"""The pages of the repository, and the anchors of their headings as GitHub derives them: for the tests of the pages, and for the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docker/*.md"), *ROOT.glob("bench/*.md")])
FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")
HEADING: Final = re.compile(r"^(#+ )(.*)$", re.MULTILINE)


def anchors(text: str) -> list[str]:
    """The anchor of each heading, in order."""
    taken: dict[str, int] = {}
    found = []
    for _, heading in HEADING.findall(FENCE.sub("", text)):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = taken[anchor] = taken.get(anchor, -1) + 1
        found.append(f"{anchor}-{number}" if number else anchor)
    return found


def outside_listings(text: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is a fenced listing."""
    pieces = []
    at = 0
    for fence in FENCE.finditer(text):
        pieces += [(text[at : fence.start()], False), (fence[0], True)]
        at = fence.end()
    return [*pieces, (text[at:], False)]
