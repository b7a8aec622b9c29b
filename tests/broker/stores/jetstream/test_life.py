"""Finding out whether a process on the same machine has ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from broker.stores.jetstream import life

pytestmark = pytest.mark.skipif(not life.own_process_mark(), reason="the system does not tell when a process was started")


def test_a_process_that_runs_has_not_ended() -> None:
    assert not life.has_ended(life.own_process_mark())


def test_a_process_that_was_killed_has_ended_even_before_its_parent_knows() -> None:
    with subprocess.Popen([sys.executable, "-c", "from broker.stores.jetstream.life import own_process_mark; print(own_process_mark(), flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        marked = process.stdout.readline().decode().strip()
        assert not life.has_ended(marked)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert life.has_ended(marked)


def test_a_new_process_with_the_same_pid_is_another_process() -> None:
    assert life.has_ended(f"{life.own_process_mark()}1")


@pytest.mark.plain
@pytest.mark.parametrize(("error", "ended"), [(PermissionError, False), (ProcessLookupError, True), (None, False)])
def test_a_process_whose_entry_in_proc_is_hidden_has_not_ended(monkeypatch: pytest.MonkeyPatch, error: type[OSError] | None, ended: bool) -> None:
    """As with the mount option hidepid: the entries of other users' processes are missing, and signals to them are not permitted."""
    boot_and_namespace, _, _ = life.own_process_mark().rsplit(" ", 2)

    def kill(process: int, number: int) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(os, "kill", kill)
    assert life.has_ended(f"{boot_and_namespace} {1 << 22} 77") == ended


@pytest.mark.parametrize("marked", ["", "another-boot pid:[1] 7 8", "nonsense"])
def test_a_mark_that_cannot_be_checked_is_no_end(marked: str) -> None:
    assert not life.has_ended(marked)
