"""`make docs` notices each broken link; that the site of the pages has none, `make docs` itself says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from docs import conf
from project import site
from project.progress import Failed
from tests.project.listings import PAGES
from tests.running import ROOT

pytestmark = pytest.mark.once  # pages of this checkout

needs_sphinx = pytest.mark.skipif(not site.installed(), reason="no .venv-docs of this lock: make docs makes it")


@needs_sphinx
def test_a_link_without_a_target_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs")
    (tmp_path / "docs" / "README.md").write_text("# Pages\n\n| page | about |\n|---|---|\n| [one.md](one.md) | one |\n")
    (tmp_path / "docs" / "one.md").write_text("# One\n\n## Which one?\n\nThe third is [two](#which-two).\n")
    (tmp_path / "README.md").write_text("# Top\n\n[one](docs/one.md#which-one) [gone](docs/gone.md) [not](docs/one.md#which-three)\n")
    with pytest.raises(subprocess.CalledProcessError) as error:
        site.build(tmp_path, tmp_path / "build")
    assert "third" in (tmp_path / "build" / "searchindex.js").read_text()
    warnings = error.value.output
    assert [warnings.count(name) > 0 for name in ("which-one'", "which-two", "which-three", "gone.md")] == [False, True, True, True], warnings


def test_without_the_generator_the_site_is_an_error_or_skipped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise Failed(["uv"], 2, "there is no network")

    monkeypatch.setattr(site, "install", refuse)
    assert (site.main([]), site.main(["--if-possible"])) == (1, 0)
    assert "there is no network" in capsys.readouterr().err


def test_links_of_the_html_are_followed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="docs/b.html#one">b</a> <a href="file.txt">f</a> <a href="https://example.com/#x">x</a>')
    (tmp_path / "docs/b.html").write_text('<p id="one">B</p><a href="../a.html#top">a</a> <a href="#one">here</a> <a href="mailto:someone">m</a>')
    assert site.problems_of(tmp_path) == set()
    (tmp_path / "docs/b.html").write_text('<a href="../a.html#gone">a</a> <a href="#two">here</a> <a href="c.html">c</a> <script src="//elsewhere/x.js"></script>')
    assert site.problems_of(tmp_path) == {
        "a.html: docs/b.html#one: no such anchor",
        "docs/b.html: ../a.html#gone: no such anchor",
        "docs/b.html: #two: no such anchor",
        "docs/b.html: c.html: no such file",
        "docs/b.html: //elsewhere/x.js is loaded from elsewhere",
    }


def test_the_navigation_has_every_page_once() -> None:
    names = [name for _, name in conf.navigation()]
    assert sorted([*names, "README"]) == sorted(page.relative_to(ROOT).with_suffix("").as_posix() for page in PAGES)
    assert names[:2] == ["docs/README", "docs/start"]
