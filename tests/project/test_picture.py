"""docs/report.png: a picture says what it was made of, so that a stale one is noticed without a browser."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from project import browser, picture

pytestmark = pytest.mark.once  # a picture of this checkout


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["picture", *words])
    return picture.main(), capsys.readouterr().err


@pytest.fixture
def stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The picture, said to be made of another template."""
    made = picture.ROOT / "build" / f"{tmp_path.name}.png"  # its name is shown relative to the checkout
    made.parent.mkdir(exist_ok=True)
    made.write_bytes(picture.PICTURE.read_bytes())
    monkeypatch.setattr(picture, "PICTURE", made)
    monkeypatch.setattr(picture, "digest", lambda: "another template")
    return made


def test_the_picture_is_of_this_template(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, capsys, "--check") == (0, "")
    assert picture.PICTURE.stat().st_size < 400_000


def test_a_stale_picture_is_noticed(stale: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = run(monkeypatch, capsys, "--check")
    assert code == 1
    assert "make generate" in line
    stale.write_bytes(picture.with_text(stale.read_bytes(), "another template"))
    assert run(monkeypatch, capsys, "--check") == (0, "")
    stale.unlink()
    assert run(monkeypatch, capsys, "--check")[0] == 1


def test_without_chromium_one_line_says_so_and_the_picture_stays(stale: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = stale.read_bytes()
    monkeypatch.setattr(browser, "find", lambda: None)
    code, line = run(monkeypatch, capsys)
    assert (code, line.count("\n"), "no Chromium" in line) == (0, 1, True)
    assert stale.read_bytes() == before
    stale.unlink()


def test_the_digest_depends_on_the_template_and_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pipeline/report/page.html", "pipeline/demo/cast.py", "project/picture.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(picture, "ROOT", tmp_path)
    digests = {picture.digest()}
    for name in ("pipeline/report/page.html", "pipeline/demo/cast.py"):
        (tmp_path / name).write_text("two")
        digests.add(picture.digest())
    assert len(digests) == 3
