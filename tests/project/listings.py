"""Parts of the pages: fenced listings, the commands in them, and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.conf import include_patterns
from tests.running import ROOT

PAGES = sorted(page for pattern in include_patterns for page in ROOT.glob(pattern))
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SEPARATORS = {"|", "||", "&&", ";", "&", ">", ">>", "2>&1", "<"}


class Listing(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """The file name under which the page lets readers save the listing; "" if there is none."""
        match = re.match(r"(?:#|//|<!--) ([\w.-]+): ", self.text)
        return match[1] if match else ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def listings(page: Path, language: str | None = None) -> list[Listing]:
    text = page.read_text()
    page_listings = []
    for fence in _FENCE.finditer(text):
        indent, says, body = fence.groups()
        if language is None or says == language:
            plain = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
            page_listings.append(Listing(page, text.count("\n", 0, fence.start()) + 1, says, plain))
    return page_listings


def listing_named(page: Path, name: str) -> str:
    (listing,) = [listing for listing in listings(page) if listing.name == name]
    return listing.text


_TENURE = re.compile(r"(?:^(?: *|\$ )|[|;&] *)(?:\S*/)?tenure ")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command line with `tenure`: continued lines joined, pipes split."""
    for line in filter(_TENURE.search, text.replace("\\\n", " ").splitlines()):
        words: list[str] = []
        for word in shlex.split(line.removeprefix("$ "), comments=True):
            if word in _SEPARATORS:
                yield words
                words = []
            else:
                words.append(word)
        yield words


def tenure_commands(text: str) -> list[list[str]]:
    """The arguments of each `tenure` call in a listing, by whatever path."""
    return [words[1:] for words in commands(text) if words and words[0].rpartition("/")[2] == "tenure"]


def links(page: Path) -> list[str]:
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub derives from headings."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table(page: Path, header: str) -> list[list[str]]:
    """The rows of the table whose first line begins with `header`."""
    rows = []
    lines = iter(page.read_text().splitlines())
    for line in lines:
        if line.startswith(f"| {header} |"):
            next(lines)
            for row in lines:
                if not row.startswith("|"):
                    break
                rows.append([cell.strip() for cell in row.strip("|").split(" | ")])
            return rows
    raise AssertionError(f"{page.name} has no table {header!r}")
