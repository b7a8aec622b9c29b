"""A broker that cannot start prints one line and exits with a code; settings that differ from the defaults are printed."""

from __future__ import annotations

import os
import selectors
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.runtime.start import ExitCode
from tests.running import Client, broker, start
from tests.support.peers import LOOPS, arguments_for, becomes_true, clients, creating, is_served, log_lines

pytestmark = pytest.mark.once  # no dependence on the Python version


def failed_start(*arguments: str, command: tuple[str, ...] = (), **variables: str) -> tuple[int, list[str]]:
    """The exit code, and the lines of standard error; standard output must be empty."""
    process = start(*arguments, command=command, **variables)
    output, errors = process.communicate(timeout=20)
    assert output == "", "a broker that cannot start printed an address"
    return process.returncode, errors.splitlines()


def below_a_file(directory: Path) -> Path:
    (directory / "file").touch()
    return directory / "file" / "data"


def a_file(directory: Path) -> Path:
    (directory / "file").touch()
    return directory / "file"


def not_for_folders(directory: Path) -> Path:
    return Path("/proc/tenure")


def a_dangling_link(directory: Path) -> Path:
    (directory / "link").symlink_to(directory / "nothing" / "there")
    return directory / "link"


@pytest.mark.parametrize("place", [below_a_file, a_file, not_for_folders, a_dangling_link])
def test_an_unwritable_directory_is_reported_in_one_line(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    directory = place(tmp_path)
    code, lines = failed_start(*arguments_for(directory))
    assert code == ExitCode.DIRECTORY
    assert len(lines) == 1
    assert lines[0].startswith(f"tenure: data directory {directory}: ")


@pytest.mark.parametrize("unwritable", ["the folder", "a file in it"])
@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere, unless setpriv takes its rights away")
def test_a_directory_of_another_user_is_refused_in_one_line_that_names_both(tmp_path: Path, unwritable: str) -> None:
    closed, mode = (tmp_path, 0o500) if unwritable == "the folder" else (tmp_path / ".lock", 0o400)
    closed.touch()
    closed.chmod(mode)
    powerless = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
    code, lines = failed_start(*arguments_for(tmp_path), command=powerless)
    tmp_path.chmod(0o700)
    user = os.geteuid()
    reason = f"Permission denied; this process runs as user {user}, and {closed} belongs to user {user} (mode {mode:o})"
    assert (code, lines) == (ExitCode.DIRECTORY, [f"tenure: data directory {tmp_path}: {reason}"])


def a_log_without_segments(directory: Path) -> tuple[Path, str]:
    with broker(*arguments_for(directory)):
        pass
    (directory / "orders-0").mkdir()
    return directory / "orders-0", f"lies inside the data directory {directory}: "


def a_copied_log(directory: Path) -> tuple[Path, str]:
    (directory / "orders-0").mkdir()
    (directory / "orders-0" / "00000000000000000000.log").touch()
    return directory / "orders-0", "is the folder of a log, with segments such as 00000000000000000000.log: "


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("place", [a_log_without_segments, a_copied_log])
def test_the_folder_of_a_log_is_refused_unchanged(tmp_path: Path, place: Callable[[Path], tuple[Path, str]], nodes: int) -> None:
    folder, reason = place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, lines = failed_start(*arguments_for(folder, f"cluster.nodes={nodes}"))
    problems = [line for line in lines if not line.startswith("{")]
    assert (code, len(problems)) == (ExitCode.DATA, 1)
    assert problems[0].startswith(f"tenure: data directory {folder} {reason}")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_in_use_is_refused_in_one_line_that_names_the_process(tmp_path: Path) -> None:
    with broker(*arguments_for(tmp_path)) as first, Client(first.port) as client:
        code, lines = failed_start(*arguments_for(tmp_path))
        assert code == ExitCode.LOCKED
        assert len(lines) == 1
        assert lines[0].startswith(f"tenure: data directory {tmp_path} is in use by process {first.pid} ")
        assert client.ask(creating("still-served"), 7).topics[0].error_code == 0


def test_the_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    with broker(*arguments_for(tmp_path)) as first:
        first.kill()
    with broker(*arguments_for(tmp_path)) as second, Client(second.port) as client:
        assert is_served(client)


@pytest.mark.parametrize("listeners", ["PLAINTEXT://127.0.0.1:{}", "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:{}"])
def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path, listeners: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, lines = failed_start("--data", str(tmp_path / "data"), "--set", f"listeners={listeners.format(port)}", "--set", "num.partitions=3")
    reason = "another process uses the port; stop that process, or choose another port with --listen HOST:PORT"
    assert (code, lines) == (ExitCode.LISTEN, [f"tenure: cannot listen on 127.0.0.1:{port}: {reason}"])


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("192.0.2.1:0", "not an address of this machine"),
        ("[2001:db8::1]:0", "not an address of this machine"),
        ("nowhere.invalid:0", "name or service not known"),
        ("127.0.0.1:1", None),
    ],
)
def test_an_unusable_listen_address_is_reported_in_one_line(tmp_path: Path, address: str, reason: str | None) -> None:
    if reason is None:
        if os.geteuid() == 0:
            pytest.skip("root may listen on every port")
        reason = "permission denied"
    code, lines = failed_start("--listen", address, "--data", str(tmp_path / "data"))
    assert code == ExitCode.LISTEN
    assert lines == [f"tenure: cannot listen on {address}: {reason}"]


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_a_wildcard_alone_is_reported_in_one_line_with_the_setting_to_add(tmp_path: Path, host: str) -> None:
    code, lines = failed_start("--listen", f"{host}:9092", "--data", str(tmp_path / "data"))
    assert (code, len(lines)) == (ExitCode.CONFIG, 1)
    assert "--advertise HOST:9092" in lines[0]


def test_all_wrong_settings_are_reported_at_once_with_their_source(tmp_path: Path) -> None:
    file = tmp_path / "tenure.toml"
    file.write_text('"num.partitions" = 0\n')
    code, lines = failed_start(
        "--config", str(file), "--set", "max.connections=many", "--set", "ssl.keystore.location=x", TENURE_OFFSETS_FLUSH="sometimes"
    )
    assert (code, len(lines)) == (ExitCode.CONFIG, 4)
    output = "\n".join(lines)
    for part in ("max.connections=many (--set)", "ssl.keystore.location=x (--set)", "num.partitions=0", str(file), "TENURE_OFFSETS_FLUSH"):
        assert part in output
    assert all(line.startswith("tenure: ") for line in lines)


def test_a_failed_start_leaves_no_file(tmp_path: Path) -> None:
    code, _ = failed_start("--profile", "test", "--listen", "192.0.2.1:0", TMPDIR=str(tmp_path))
    assert code == ExitCode.LISTEN
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_standard_output_has_one_line_for_each_listener_and_nothing_else(loop: str) -> None:
    process = start("--profile", "test", "--set", f"event.loop={loop}", "--set", "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0")
    assert process.stdout is not None
    listening = [process.stdout.readline(), process.stdout.readline()]
    process.terminate()
    further_output, _ = process.communicate(timeout=10)
    ports = [int(line.rpartition(":")[2]) for line in listening]
    assert listening == [f"listening PLAINTEXT 127.0.0.1:{ports[0]}\n", f"listening INSIDE 127.0.0.1:{ports[1]}\n"]
    assert further_output == ""
    assert len({0, *ports}) == 3


def test_every_changed_setting_is_printed_with_its_source(tmp_path: Path) -> None:
    with broker(*arguments_for(tmp_path, "num.partitions=3"), TENURE_MAX_CONNECTIONS="7") as started:
        started.await_line('"event": "listening"')  # all settings are logged before this line
        settings = {entry["name"]: (entry["value"], entry["source"]) for entry in log_lines(started, "setting")}
    assert settings == {
        "listeners": ("127.0.0.1:0", "--listen"),
        "log.dirs": (str(tmp_path), "--data"),
        "num.partitions": ("3", "--set"),
        "max.connections": ("7", "environment TENURE_MAX_CONNECTIONS"),
    }


def test_a_traced_start_logs_how_long_each_step_took(tmp_path: Path) -> None:
    with broker(*arguments_for(tmp_path), "--trace-start") as started:
        started.await_line('"event": "start"')
        (line,) = log_lines(started, "start")
    steps = {step: float(text.split()[0]) for step, text in line.items() if step not in ("time", "level", "event")}
    total = steps.pop("total")
    assert list(steps) == ["command_line", "settings", "logs", "modules", "event_loop", "listeners", "data_directory", "registry_and_apis"]
    assert min(steps.values()) >= 0
    assert sum(steps.values()) == pytest.approx(total, abs=1)


def test_eight_brokers_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Each broker of the test profile has its own port and temporary data, which it removes at its end."""
    processes = [start("--profile", "test", TMPDIR=str(tmp_path)) for _ in range(8)]
    try:
        ports = []
        for process in processes:
            assert process.stdout is not None
            ports.append(int(process.stdout.readline().rpartition(":")[2]))
        for number, port in enumerate(ports):
            with Client(port) as client:
                assert client.ask(creating(f"of-{number}"), 7).topics[0].error_code == 0
        assert len(list(tmp_path.iterdir())) == 8
        for process in processes:
            process.terminate()
        errors = [process.communicate(timeout=10)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 8
    assert not any('"level": "error"' in text or "Traceback" in text for text in errors)
    assert list(tmp_path.iterdir()) == []


def unread_log(directory: Path) -> tuple[str, ...]:
    """The prefix of a command whose standard error is a pipe without a reader."""
    os.mkfifo(directory / "log")
    return ("sh", "-c", 'exec "$@" 2>"$0"', str(directory / "log"))


def writable(descriptor: int) -> bool:
    with selectors.PollSelector() as selector:
        selector.register(descriptor, selectors.EVENT_WRITE)
        return bool(selector.select(0))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_log_output_without_a_reader_stops_nothing(tmp_path: Path, loop: str) -> None:
    command = unread_log(tmp_path)
    unread = os.open(tmp_path / "log", os.O_RDWR)
    try:
        with broker("--profile", "test", "--set", f"event.loop={loop}", command=command) as started, Client(started.port) as client:
            for round in range(8):
                with clients(100, started.port) as nonsense:
                    for number, peer in enumerate(nonsense):
                        peer.send_frame((20_000 + 100 * round + number).to_bytes(2, "big") + b"nonsense")  # new log lines, as equal ones are only counted
                    assert all(peer.await_close() for peer in nonsense)
                assert is_served(client)
            assert becomes_true(lambda: not writable(unread)), "the pipe is not full"
            assert started.stop() == 0
    finally:
        os.close(unread)

