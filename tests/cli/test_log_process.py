"""`tenure log` as a process: its output streams, imports and memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cli.logs.files import lock_holder
from protocol.batch import build_facts
from tests.cli.log_folders import OFFSETS, Command, Folder, offset
from tests.running import environment

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_closed_output_pipe_ends_log_commands_quietly(json: list[str], folder: Folder) -> None:
    log = folder.open("orders", 1)
    for _ in range(20):
        log.append(build_facts([(b"k", b"v" * 100)] * 500, 1), log.epoch)
    folder.close("orders", 1, log)
    command = [sys.executable, "-P", "-m", "tenure", "log", "dump", str(folder.path), *json]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 0


def test_an_output_that_cannot_be_written_is_reported_in_one_line(folder: Folder) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-P", "-m", "tenure", "log", "dump", str(folder.path)]
        done = subprocess.run(command, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (74, "tenure: standard output: No space left on device\n")


def test_verify_without_standard_output_still_sets_its_exit_code(folder: Folder) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-P", "-m", "tenure", "log", "verify", str(folder.path)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_characters_missing_from_the_terminal_encoding_are_escaped(folder: Folder) -> None:
    folder.append(OFFSETS, 0, [offset("été", 0, 1)])
    command = [sys.executable, "-P", "-m", "tenure", "log", "dump", str(folder.path), "--group", "été"]
    done = subprocess.run(command, env=environment(PYTHONIOENCODING="ascii"), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0
    assert "offset \\xe9t\\xe9 orders-0" in done.stdout


def test_log_commands_import_no_broker_and_no_event_loop(folder: Folder) -> None:
    code = (
        "import sys, cli; cli.main(['log', 'verify', sys.argv[1]]); cli.main(['log', 'dump', sys.argv[1], '--limit', '1'])\n"
        "print(*[name for name in sys.modules if name in ('asyncio', 'uvloop', 'logging', 'socket', 'cli.serve') or name.partition('.')[0] == 'broker'])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, str(folder.path)], env=environment(), capture_output=True, text=True, check=True)
    hides_logins = {"broker", "broker.logging", "broker.logging.secrets", "broker.backends", "broker.backends.table"}  # in every command
    assert set(done.stdout.splitlines()[-1].split()) == hides_logins


@pytest.mark.alone
def test_memory_does_not_grow_with_the_log(folder: Folder) -> None:
    def peak_kib() -> int:
        code = (
            "import sys, os, resource, cli; cli.main(['log', 'verify', sys.argv[1]])\n"
            "cli.main(['log', 'dump', sys.argv[1], '--group', 'nobody'])\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-P", "-c", code, str(folder.path)], env=environment(), capture_output=True, text=True, check=True)
        return int(done.stdout.splitlines()[-1])

    before = peak_kib()
    log = folder.open(OFFSETS, 0, segment_bytes=1 << 30)
    batch = build_facts([offset(folder.group, 0, 1, metadata="m" * 1000)] * 100, 1)
    for _ in range(300):
        log.append(batch, log.epoch)
    folder.close(OFFSETS, 0, log)
    assert folder.segment(OFFSETS).stat().st_size > 25_000_000
    assert peak_kib() - before < 12_000


def test_log_commands_take_no_lock(folder: Folder, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("a lock was taken")

    monkeypatch.setattr("fcntl.flock", fail)
    monkeypatch.setattr("fcntl.lockf", fail)
    assert lock_holder(str(folder.path)) is None
    command.lines(folder.path)
    command.verify(folder.path)


def test_json_output_has_one_object_per_line(folder: Folder, command: Command) -> None:
    folder.append("orders", 1, [("\u2028\u0085".encode(), b"\n")])
    output = command.lines(folder.path / "orders-1", "--json")
    assert [json.loads(line)["key"] for line in output] == [{"hex": "e280a8c285"}]
