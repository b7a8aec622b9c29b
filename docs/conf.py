"""The settings of Sphinx for `make docs`. The pages are read where they are, as GitHub reads them: its anchors, and links between files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "docs" / "README.md"  # its table is the navigation

project = html_title = "Tenure"
copyright = "the Tenure authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docker/*.md", "bench/*.md"]
exclude_patterns = [".*", "build", "data", "dist"]
myst_heading_anchors = 6
highlight_language = "none"
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"


def navigation() -> list[tuple[str, str]]:
    """The title and the name of each page, in the order of the index, and then those that it does not name. Headings are too long for titles."""
    named = [(INDEX.parent / path).resolve() for path in re.findall(r"^\| \[[^]]*\]\(([^)]+)\)", INDEX.read_text(), re.MULTILINE)]
    pages = [path for pattern in include_patterns for path in sorted(ROOT.glob(pattern)) if path.parent != ROOT or path.name != "README.md"]
    names = [page.relative_to(ROOT).with_suffix("") for page in [INDEX, *named, *[page for page in pages if page not in {INDEX, *named}]]]
    return [(title_of(name), name.as_posix()) for name in names]


def title_of(name: Path) -> str:
    if name.as_posix() == "docs/README":
        return "The pages"
    return (name.parent.name if name.name == "README" else name.name).capitalize()


def add_navigation(app: Any, name: str, source: list[str]) -> None:
    """Add to README what GitHub would show as text: a hidden table of contents."""
    if name == root_doc:
        entries = "\n".join(f"{title} <{page}>" for title, page in navigation())
        source[0] += f"\n```{{toctree}}\n:hidden:\n{entries}\n```\n"


def setup(app: Any) -> None:
    from pygments.lexers.special import TextLexer

    app.connect("source-read", add_navigation)
    app.add_lexer("mermaid", TextLexer)  # GitHub draws these diagrams; drawing them here would load a library from elsewhere
