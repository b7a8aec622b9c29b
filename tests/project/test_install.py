from __future__ import annotations

import json
import os
import shutil
import venv
from pathlib import Path

import pytest

from project import install


class Recorded:
    """install.py with an environment that costs nothing: what pip was asked for, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.verbs: list[str] = []

    def create(self, folder: Path, **how: object) -> None:
        assert how["clear"]
        self.verbs.append("create")
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "bin").mkdir(parents=True)
        for name in ("python", "tenure"):
            (folder / "bin" / name).touch(mode=0o755)

    def pip(self, folder: Path, verb: str, *arguments: str) -> None:
        self.verbs.append("project" if "--editable" in arguments else verb)
        assert "--editable" in arguments or verb == "check" or "--require-hashes" in arguments

    def ready(self, this_python: bool = False) -> list[str]:
        self.verbs = []
        install.make_ready(self.folder, this_python)
        return self.verbs


EVERYTHING = ["create", "download", "install", "check", "project"]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded(tmp_path / ".venv")
    monkeypatch.setattr(venv, "create", recorded.create)
    monkeypatch.setattr(install, "pip", recorded.pip)
    assert recorded.ready() == EVERYTHING
    return recorded


def test_a_second_time_installs_nothing(environment: Recorded) -> None:
    assert environment.ready() == []


def test_another_lock_makes_it_anew(environment: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(install.DEVELOPMENT.read_text() + "\n")
    monkeypatch.setattr(install, "DEVELOPMENT", tmp_path / "lock")
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "project", lambda: "same")
    assert environment.ready() == EVERYTHING


def test_other_metadata_installs_the_project_alone(environment: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "project", lambda: "another version")
    assert environment.ready() == ["project"]
    assert environment.ready() == []


@pytest.mark.parametrize("lost", ["bin/python", "bin/tenure", install.STAMP])
def test_half_an_environment_is_made_anew(environment: Recorded, lost: str) -> None:
    (environment.folder / lost).unlink()
    assert environment.ready() == EVERYTHING


def test_a_python_that_moved_away_is_replaced(environment: Recorded) -> None:
    (environment.folder / "bin" / "python").unlink()
    (environment.folder / "bin" / "python").symlink_to("/nowhere/python3.11")
    assert environment.ready() == EVERYTHING


@pytest.mark.parametrize("stamp", ["", "[]", "{}", "{", '{"locks": 1}'])
def test_a_stamp_that_says_nothing_is_no_stamp(environment: Recorded, stamp: str) -> None:
    (environment.folder / install.STAMP).write_text(stamp)
    assert environment.ready() == EVERYTHING


def test_an_environment_that_was_moved_is_made_anew(environment: Recorded) -> None:
    moved = environment.folder.with_name("moved")
    os.rename(environment.folder, moved)
    environment.folder = moved
    assert environment.ready() == EVERYTHING


def test_another_python_makes_it_anew_only_when_it_was_asked_for(environment: Recorded) -> None:
    stamp = environment.folder / install.STAMP
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {"python": "3.12.1 /opt/python"}))
    assert environment.ready() == []
    assert environment.ready(this_python=True) == EVERYTHING


@pytest.mark.parametrize("wanting", ["locks", "project"])
def test_an_interrupted_setup_does_not_pass_for_a_complete_one(environment: Recorded, monkeypatch: pytest.MonkeyPatch, wanting: str) -> None:
    def interrupted(*arguments: object, **how: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(install, wanting, lambda *_: "another")
        patched.setattr(venv, "create", interrupted)  # which begins with removing what is there
        patched.setattr(install, "pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            environment.ready()
    assert environment.ready() == EVERYTHING
