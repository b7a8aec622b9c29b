"""What `make dist` builds: what is in it, and that it serves where nothing else of ours is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from cli import VERSION
from project import distribution
from project.install import SERVING, WHEELS
from tests.running import ROOT

pytestmark = pytest.mark.once

LEFT_BEHIND = shutil.ignore_patterns(".*", "build", "dist", "data", "*.egg-info", "__pycache__", "*.so")
PLAIN = {"PATH": os.defpath, "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout, and of what may lie around in one."""
    checkout, built = tmp_path_factory.mktemp("checkout") / "tenure", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, checkout, ignore=LEFT_BEHIND)
    for stray in ("docker/__init__.py", "bench/__init__.py", "protocol/wire.cpython-311.so", "protocol/note.txt"):
        (checkout / stray).parent.mkdir(exist_ok=True)
        (checkout / stray).touch()
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(built), "."]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return built


def test_the_archives_hold_what_runs_and_nothing_else(archives: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert distribution.main(archives) == 0, capsys.readouterr().err


def test_the_metadata_says_what_an_index_and_an_installer_ask(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    with ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        about: Message = Parser().parsestr(opened.read(name).decode())
    assert (about["Name"], about["Version"], about["License-Expression"], about["Requires-Python"]) == ("tenure", VERSION, "Apache-2.0", ">=3.11")
    assert about.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert about["Summary"]
    assert about["Author"]
    assert about["Description-Content-Type"] == "text/markdown"
    assert "make run" in str(about.get_payload())
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(about.get_all("Classifier", []))
    locked = {line.split("==")[0] for line in SERVING.read_text().splitlines() if line[0].isalnum()}
    assert {requirement.split(">")[0] for requirement in about.get_all("Requires-Dist", [])} == locked


OURS = ("protocol", "coordinator", "storage", "history", "broker", "cli")
DECOY = "raise ImportError('this is a package of another application')\n"


@pytest.fixture(scope="module")
def environment(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, where another application has installed packages with the names of ours."""
    made = empty_environment(tmp_path_factory.mktemp("environment"), archives)
    (site_packages,) = made.glob("lib/python3.*/site-packages")
    decoys(site_packages)
    return made


def decoys(folder: Path) -> Path:
    for name in OURS:
        assert not (folder / name).exists(), "installing Tenure put one of its common names where everybody finds it"
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(DECOY)
    return folder


def test_one_name_is_installed_and_importing_it_changes_nothing(environment: Path) -> None:
    code = "import sys; before = list(sys.path), set(sys.modules); import tenure; print(list(sys.path) == before[0], set(sys.modules) - before[1])"
    done = subprocess.run([environment / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True {'tenure'}\n"


def test_the_whole_command_works_among_packages_with_the_names_of_ours(environment: Path, tmp_path: Path) -> None:
    """They are installed, on PYTHONPATH and in the current folder."""
    elsewhere = decoys(tmp_path / "elsewhere")
    plain = PLAIN | {"PYTHONPATH": f"{decoys(tmp_path / 'path')}:."}

    def tenure(*arguments: str, input: str | None = None) -> str:
        command = [str(environment / "bin" / "tenure"), *arguments]
        done = subprocess.run(command, cwd=elsewhere, env=plain, capture_output=True, text=True, input=input, timeout=30, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    module = [str(environment / "bin" / "python"), "-m", "tenure", "--version"]
    assert subprocess.run(module, cwd=elsewhere, env=plain, capture_output=True, text=True, check=True).stdout == tenure("--version")
    assert tenure("--version").startswith(f"tenure {VERSION}")

    command = [str(environment / "bin" / "tenure"), "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    with (
        (tmp_path / "errors").open("w+") as errors,
        subprocess.Popen(command, cwd=elsewhere, env=plain, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        assert server.stdout is not None
        try:
            listening = server.stdout.readline()
            assert listening.startswith("listening PLAINTEXT 127.0.0.1:"), listening + (tmp_path / "errors").read_text()
            at = ("--bootstrap", listening.split()[-1])
            tenure("health", listening.split()[-1])
            compacted = ("cleanup.policy=compact", "segment.bytes=1048576", "min.cleanable.dirty.ratio=0.01")
            tenure("topic", "create", "words", *(word for one in compacted for word in ("--set", one)), *at)
            lines = "".join(f"key{number % 10}:{'x' * 10_000}\n" for number in range(500))
            tenure("produce", "words", "--key-separator", ":", *at, input=lines)
            assert tenure("consume", "words", "--group", "readers", "--from-beginning", "--limit", "10", *at).count("x" * 10_000) == 10
            assert "readers" in tenure("group", "list", *at)
            until = time.monotonic() + 30
            while "cleaned" not in (tmp_path / "errors").read_text() and time.monotonic() < until:
                time.sleep(0.1)
            assert "cleaned" in (tmp_path / "errors").read_text(), "no log was compacted"
            server.send_signal(signal.SIGTERM)
            assert server.wait(10) == 0, (tmp_path / "errors").read_text()
        finally:
            server.kill()


def empty_environment(folder: Path, archives: Path) -> Path:
    """An environment with the wheel and the serving lock, from the files that setup kept: no package index is asked."""
    kept = Path(sys.prefix) / WHEELS
    if not kept.is_dir():
        pytest.skip("needs the wheels that `make setup` keeps, and this Python is not of its making")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-I", "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check", "install", "--quiet"]
    (wheel,) = archives.glob("*.whl")
    subprocess.run([*pip, "--no-index", "--find-links", str(kept), "--require-hashes", "--requirement", str(SERVING)], check=True)
    subprocess.run([*pip, "--no-index", str(wheel)], check=True)  # with its dependencies: what is missing in the lock would be missed here
    return folder
