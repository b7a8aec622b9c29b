from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from project import install
from tests.running import ROOT


class Recorded:
    """Runs install.py with an installer that only records what it should do."""

    name = "recorded"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[str] = []
        self.interrupted_at = ""

    def choose(self, fetch_from: Path | None) -> Recorded:
        self.fetched_from = fetch_from
        return self

    def create(self, folder: Path) -> None:
        self._record("create")
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "bin").mkdir(parents=True)
        (folder / "lib/python3.11/site-packages").mkdir(parents=True)
        (folder / "bin/python").touch(mode=0o755)

    def install(self, folder: Path, lock: Path, *options: str) -> None:
        assert options == (install.FROM_SOURCE if lock.stem == "analyze-sources" else ())
        assert "==" in lock.read_text()
        self._record(f"install {lock.stem}")

    def check(self, folder: Path) -> None:
        self._record("check")

    def _record(self, step: str) -> None:
        if step.split()[0] == self.interrupted_at:
            self.interrupted_at = ""
            raise KeyboardInterrupt
        self.done.append(step)

    def ready(self, this_python: bool = False, development: bool = True, analyze: Path | None = None) -> list[str]:
        self.done = []
        install.bring_up_to_date(self.folder, this_python, development, analyze)
        return self.done


SERVING = ["create", "install serving"]
REST = ["install development", "check"]
ANALYZE = ["install analyze-wheels", "install analyze-sources"]


@pytest.fixture
def recorded_venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded(tmp_path / ".venv")
    monkeypatch.setattr(install, "choose", recorded.choose)
    monkeypatch.setattr(install, "create", recorded.create)
    monkeypatch.setattr(install, "compile_to_bytecode", lambda folder, *arguments: None)
    return recorded


@pytest.fixture
def complete(recorded_venv: Recorded) -> Recorded:
    assert recorded_venv.ready() == SERVING + REST
    return recorded_venv


def copied_lock(lock: Path, folder: Path) -> Path:
    changed = folder / lock.name
    changed.write_text(lock.read_text() + "\n")
    return changed


def test_a_second_setup_installs_nothing(complete: Recorded) -> None:
    assert complete.ready() == []
    assert complete.ready(development=False) == []


def test_serving_installs_its_dependencies_and_development_adds_its_own(recorded_venv: Recorded) -> None:
    assert recorded_venv.ready(development=False) == SERVING
    assert recorded_venv.ready(development=False) == []
    assert recorded_venv.ready() == REST
    assert recorded_venv.ready() == []


def test_analyze_dependencies_are_installed_on_request(recorded_venv: Recorded) -> None:
    assert recorded_venv.ready(development=False, analyze=install.ANALYZE) == SERVING + ANALYZE
    assert recorded_venv.ready(analyze=install.ANALYZE) == REST
    assert recorded_venv.ready() == []


def test_another_pyspark_rebuilds_the_environment(recorded_venv: Recorded) -> None:
    recorded_venv.ready(analyze=install.ANALYZE)
    assert recorded_venv.ready(analyze=install.ANALYZE_NEWEST) == SERVING + REST + ANALYZE


def test_another_serving_lock_rebuilds_the_environment(complete: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "SERVING", copied_lock(install.SERVING, tmp_path))
    monkeypatch.setattr(install, "ROOT", tmp_path)
    assert complete.ready(development=False) == SERVING


def test_another_development_lock_rebuilds_the_development_environment(
    complete: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(install, "DEVELOPMENT", copied_lock(install.DEVELOPMENT, tmp_path))
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "SERVING", shutil.copy(install.SERVING, tmp_path / "serving.txt"))
    assert complete.ready(development=False) == []
    assert complete.ready() == SERVING + REST


@pytest.mark.parametrize("lost", ["bin/python", "bin/tenure", install.STAMP])
def test_an_incomplete_environment_is_rebuilt(complete: Recorded, lost: str) -> None:
    (complete.folder / lost).unlink()
    assert complete.ready() == SERVING + REST


def test_a_python_that_moved_away_is_replaced(complete: Recorded) -> None:
    (complete.folder / "bin" / "python").unlink()
    (complete.folder / "bin" / "python").symlink_to("/nowhere/python3.11")
    assert complete.ready() == SERVING + REST


@pytest.mark.parametrize("stamp", ["", "[]", "{}", "{", '{"serving": 1}', '{"locks": "x", "project": "y", "python": "3.11.7 /opt"}'])
def test_an_empty_stamp_does_not_count(complete: Recorded, stamp: str) -> None:
    (complete.folder / install.STAMP).write_text(stamp)
    assert complete.ready() == SERVING + REST


def test_a_moved_environment_is_rebuilt(complete: Recorded) -> None:
    moved = complete.folder.with_name("moved")
    os.rename(complete.folder, moved)
    complete.folder = moved
    assert complete.ready() == SERVING + REST


def test_another_python_rebuilds_the_environment_only_on_request(complete: Recorded) -> None:
    stamp = complete.folder / install.STAMP
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {"python": "3.12.1 /opt/python"}))
    assert complete.ready() == []
    assert complete.ready(this_python=True) == SERVING + REST


@pytest.mark.parametrize("at", ["create", "install", "check"])
def test_an_interrupted_setup_does_not_count_as_complete(recorded_venv: Recorded, at: str) -> None:
    recorded_venv.interrupted_at = at
    with pytest.raises(KeyboardInterrupt):
        recorded_venv.ready()
    assert recorded_venv.ready() == SERVING + REST


def test_uv_is_fetched_for_the_many_packages_only(recorded_venv: Recorded) -> None:
    recorded_venv.ready(development=False)
    assert recorded_venv.fetched_from is None
    recorded_venv.ready()
    assert recorded_venv.fetched_from == install.DEVELOPMENT


@pytest.mark.once
def test_the_command_runs_this_checkout_wherever_it_is_called(tmp_path: Path) -> None:
    """Runs the real command, without pip."""
    folder = tmp_path / "environment with a space"
    venv.create(folder, symlinks=True)
    install.install_project(folder)
    code = "import tenure; print(tenure.__file__)"
    done = subprocess.run([folder / "bin/python", "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == ROOT / "tenure/__init__.py"
    assert subprocess.run([folder / "bin/tenure", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.startswith("tenure ")


@pytest.mark.once
def test_bytecode_is_written_despite_pythondontwritebytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(install, "ROOT", tmp_path)
    for package in ("some", "other/inside"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "module.py").touch()
    for package in ("some", "other"):
        (tmp_path / package / "__init__.py").touch()
    venv.create(tmp_path / ".venv", symlinks=True)
    install.write_bytecode(tmp_path / ".venv")
    files = sorted(path.relative_to(tmp_path).parts[0] + "/" + path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc"))
    assert files == ["other/__init__", "other/module", "some/__init__", "some/module"]


def test_an_environment_behind_a_link_is_not_touched(
    recorded_venv: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    recorded_venv.folder.symlink_to(tmp_path / "other")
    monkeypatch.setattr("sys.argv", ["install.py", str(recorded_venv.folder)])
    assert install.main() == 1
    assert recorded_venv.done == []
    assert capsys.readouterr().err == f"setup: {recorded_venv.folder} is a link to {tmp_path / 'other'}: remove the link, and run this again\n"
