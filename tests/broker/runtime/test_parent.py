"""A broker of a test run ends with the process that started it, however that ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.runtime import parent
from broker.runtime.parent import ParentWatch
from tests.running import environment

pytestmark = pytest.mark.once

PARENT = """
import subprocess, sys, time
log = open(sys.argv[1], "w")
broker = subprocess.Popen([sys.executable, "-P", "-m", "tenure", "serve", *sys.argv[2:]], stdout=subprocess.PIPE, stderr=log, text=True)
print(broker.pid, broker.stdout.readline(), end="", flush=True)
time.sleep(60)
"""
SECONDS = 20


class Orphan:
    """A broker whose parent was killed as soon as the broker listened."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "log"
        command = [sys.executable, "-c", PARENT, str(self._log), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(TMPDIR=str(folder))) as started:
            assert started.stdout is not None
            pid, word = started.stdout.readline().split()[:2]
            started.kill()
        assert word == "listening"
        self.pid = int(pid)
        self.left_at = time.monotonic()

    @property
    def runs(self) -> bool:
        status = Path(f"/proc/{self.pid}/status")
        try:
            os.kill(self.pid, 0)
            return not Path("/proc/self").exists() or "\nState:\tZ" not in status.read_text()  # Z: a zombie, which has ended
        except (ProcessLookupError, FileNotFoundError):
            return False

    def ended_after(self) -> float:
        while self.runs and time.monotonic() < self.left_at + SECONDS:
            time.sleep(0.02)
        took = time.monotonic() - self.left_at
        if self.runs:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"still running after {took:.0f} s: {self.log()}")
        return took

    def log(self) -> str:
        return self._log.read_text()


def test_a_broker_of_a_killed_test_run_stops_and_removes_its_folder(tmp_path: Path) -> None:
    orphan = Orphan(tmp_path, "--profile", "test")
    took = orphan.ended_after()
    assert "the process that started this one has ended" in orphan.log()
    assert "stopped" in orphan.log().splitlines()[-1]
    assert list(tmp_path.glob("tenure-test-*")) == []
    assert took < 2 + (SECONDS if os.getloadavg()[0] > 2 else 0)


@pytest.mark.parametrize("arguments", [["--profile", "test", "--no-exit-with-parent"], ["--listen", "127.0.0.1:0"]], ids=["switched off", "by default"])
def test_a_broker_that_was_put_into_the_background_stays(tmp_path: Path, arguments: list[str]) -> None:
    orphan = Orphan(tmp_path, *arguments, "--data", str(tmp_path / "data"))
    try:
        time.sleep(3 * parent.CHECK_SECONDS)
        assert orphan.runs
    finally:
        os.kill(orphan.pid, signal.SIGTERM)
        orphan.ended_after()
    assert "signal=SIGTERM" in orphan.log() or '"SIGTERM"' in orphan.log()


def test_the_flag_works_without_the_profile(tmp_path: Path) -> None:
    orphan = Orphan(tmp_path, "--exit-with-parent", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    orphan.ended_after()
    assert (tmp_path / "data").is_dir()


@pytest.mark.parametrize("started_by", [0, 1])
def test_without_a_parent_no_watch_is_started(monkeypatch: pytest.MonkeyPatch, started_by: int) -> None:
    """Parent pid 0: the first process of a container, which has no parent. Parent pid 1: a daemon, whose parent is init from the beginning."""
    monkeypatch.setattr(parent, "PARENT_PID", started_by)
    monkeypatch.setattr(os, "getppid", lambda: 4711)
    reasons: list[dict[str, object]] = []
    loop = asyncio.new_event_loop()
    ParentWatch(loop, reasons.append)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert reasons == []


def test_a_parent_that_is_gone_already_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "PARENT_PID", 4711)
    reasons: list[dict[str, object]] = []
    loop = asyncio.new_event_loop()
    ParentWatch(loop, reasons.append)
    loop.close()
    assert [why["parent"] for why in reasons] == [4711]


@pytest.mark.plain  # replaces functions of the operating system
def test_a_check_that_raises_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch, planted_defect: None) -> None:
    """The parent ends after a check that could not ask for it."""
    monkeypatch.setattr(parent, "PARENT_PID", 4711)
    monkeypatch.setattr(parent, "CHECK_SECONDS", 0.01)
    answers: list[int] = [4711]

    def getppid() -> int:
        if not answers:
            answers.append(1)
            raise RuntimeError("a defect")
        return answers[-1]

    monkeypatch.setattr(os, "getppid", getppid)
    reasons: list[dict[str, object]] = []
    loop = asyncio.new_event_loop()
    watch = ParentWatch(loop, reasons.append)
    answers.clear()
    loop.run_until_complete(asyncio.sleep(0.2))
    watch.close()
    loop.close()
    assert [why["parent"] for why in reasons] == [4711]


WRAPPED = PARENT.replace('[sys.executable, "-P", "-m", "tenure", "serve", *sys.argv[2:]]', 'f"{sys.executable} -P -m tenure serve {sys.argv[2]}; true"').replace(
    "stdout=", "shell=True, stdin=subprocess.PIPE, stdout="
)


def test_a_closed_standard_input_pipe_stops_the_broker_behind_a_wrapper(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", WRAPPED, str(log), "--profile=test"], stdout=subprocess.PIPE, text=True, env=environment(TMPDIR=str(tmp_path))
    ) as started:
        assert started.stdout is not None
        shell, word = started.stdout.readline().split()[:2]
        assert word == "listening"
        time.sleep(2 * parent.CHECK_SECONDS)
        assert "stopping" not in log.read_text()
        started.kill()
    until = time.monotonic() + SECONDS
    while '"stopped"' not in log.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    for remaining_folder in tmp_path.glob("tenure-test-*"):
        os.kill(int(remaining_folder.name.split("-")[2]), signal.SIGKILL)
    assert '"reason": "standard input was a pipe, and its other end was closed"' in log.read_text(), f"left behind by the shell {shell}"
    assert '"stopped"' in log.read_text()


@pytest.mark.parametrize("source", ["/dev/null", "a file", "a pipe that is closed already", "a pipe with a line in it", "none"])
def test_other_kinds_of_standard_input_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str) -> None:
    (tmp_path / "file").touch()
    ends: tuple[int, ...] = os.pipe() if "pipe" in source else (os.open(os.devnull if source == "/dev/null" else tmp_path / "file", os.O_RDONLY),)
    if "closed" in source:
        os.close(ends[1])
    elif "line" in source:
        os.write(ends[1], b"a line\n")
    if source == "none":
        os.close(ends[0])
    monkeypatch.setattr(parent, "STANDARD_INPUT", ends[0])
    reasons: list[dict[str, object]] = []
    loop = asyncio.new_event_loop()
    watch = ParentWatch(loop, reasons.append)
    watch._check()
    watch.close()
    loop.close()
    assert reasons == []
    for end in ends[: 1 if "closed" in source else None] if source != "none" else ():
        os.close(end)
