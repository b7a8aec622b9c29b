"""The committed code is what the generator writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol import generate

RENDERED = generate.rendered()


def test_the_committed_messages_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_stale_missing_and_left_over_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "MESSAGES", tmp_path)
    monkeypatch.setattr(generate, "rendered", lambda: RENDERED)
    for name, text in RENDERED.items():
        (tmp_path / name).write_text(text + "#" if name == "fetch.py" else text)
    (tmp_path / "heartbeat.py").unlink()
    (tmp_path / "gone.py").write_text("")
    assert generate.main(["--check"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [Path(line.split(":")[0]).name for line in lines] == ["fetch.py", "gone.py", "heartbeat.py"]
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert not (tmp_path / "gone.py").exists()


def test_nothing_that_serves_imports_the_generator() -> None:
    for path in Path(generate.__file__).parent.rglob("*.py"):
        if path.name != "generate.py" and path.parent.name != "generator":
            text = path.read_text()
            assert "import kio" not in text
            assert "from kio" not in text
            assert "protocol.generator" not in text
