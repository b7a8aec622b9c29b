"""`make docs`: the pages as a site with search under build/site, which opens from the disk too. Fails if a link of it has no target.

Sphinx reads the pages where they are (docs/conf.py), in an environment of its own from requirements/docs.txt, and fails at each warning. Then every
link of the HTML is followed, and nothing may be loaded from elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from project.installers import choose, create
from project.progress import Failed

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements" / "docs.txt"
UV_LOCK: Final = ROOT / "requirements" / "development.txt"
ENVIRONMENT: Final = ROOT / ".venv-docs"
SITE: Final = ROOT / "build" / "site"
LOADING: Final = ("script", "img", "link")


def main(words: list[str]) -> int:
    """`--if-possible`: no error if the generator cannot be had."""
    try:
        install()
    except Failed as error:
        skipped = "--if-possible" in words
        print(f"{error.output.rstrip()}\ndocs: {'skipped, since ' if skipped else ''}{error}", file=sys.stderr)
        return 0 if skipped else 1
    try:
        build(ROOT, SITE)
    except subprocess.CalledProcessError as error:
        print(f"{error.output.rstrip()}\ndocs: the site has warnings (exit code {error.returncode})", file=sys.stderr)
        return 1
    problems = sorted(problems_of(SITE))
    for line in problems:
        print(f"docs: {line}", file=sys.stderr)
    if not problems:
        print(f"docs: {len(list(SITE.glob('**/*.html')))} pages, no broken link: {(SITE / 'index.html').as_uri()}")
    return 1 if problems else 0


def installed() -> bool:
    stamp = ENVIRONMENT / "lock"
    return stamp.exists() and stamp.read_text() == digest()


def digest() -> str:
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


def install() -> None:
    """Make the environment from its lock, unless it is there. Raises Failed."""
    if installed():
        return
    print(f"docs: {ENVIRONMENT.name}, from {LOCK.relative_to(ROOT)} (once)", flush=True)
    installer = choose(UV_LOCK)
    create(ENVIRONMENT)
    installer.install(ENVIRONMENT, LOCK)
    (ENVIRONMENT / "lock").write_text(digest())


def build(root: Path, site: Path) -> None:
    """Build the site of this checkout. Raises CalledProcessError with the warnings."""
    shutil.rmtree(site, ignore_errors=True)
    words = ["--builder", "html", "--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--fresh-env", "--jobs", "auto"]
    folders = ["--conf-dir", str(root / "docs"), "--doctree-dir", str(site.with_name(f"{site.name}-read")), str(root), str(site)]
    command = [str(ENVIRONMENT / "bin" / "python"), "-P", "-m", "sphinx", *words, *folders]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    shutil.copyfile(site / "README.html", site / "index.html")


class Page(HTMLParser):
    """The links of a page, what it loads, and what can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.loaded: set[str] = set()
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value is None:
                continue
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src"):
                self.targets.add(value)
                if tag in LOADING:
                    self.loaded.add(value)


def problems_of(site: Path) -> set[str]:
    """A line for each link whose file or anchor is missing, and for each file that a page loads from elsewhere."""
    pages = {path: Page(path.read_text()) for path in site.glob("**/*.html")}
    problems = set()
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in page.targets:
            parts = urlsplit(link)
            if parts.netloc and link in page.loaded:
                problems.add(f"{name}: {link} is loaded from elsewhere")
            if parts.scheme or parts.netloc:
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if not target.is_file():
                problems.add(f"{name}: {link}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                problems.add(f"{name}: {link}: no such anchor")
    return problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
