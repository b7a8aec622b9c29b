from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import cli
from broker.logging import logs
from broker.runtime.start import ExitCode, StartError
from broker.settings.config import Config
from broker.settings.report import log_settings

ROOT = Path(__file__).parents[2]

Serve = Callable[[Config], int]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`tenure serve` with a stand-in for the broker."""
    for variable in [name for name in os.environ if name.startswith("TENURE_")]:
        monkeypatch.delenv(variable)

    def run(broker: Serve, *arguments: str) -> int:
        module = types.ModuleType("broker.server")
        module.serve = broker  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "broker.server", module)
        return cli.main(["serve", *arguments])

    return run


def succeed(config: Config) -> int:
    return 0


def events(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_the_command_exits_with_the_brokers_code(serve: Callable[..., int]) -> None:
    assert serve(succeed) == 0
    assert serve(lambda config: 74) == 74


def test_the_broker_gets_the_configuration(serve: Callable[..., int]) -> None:
    configs: list[Config] = []

    def remember(config: Config) -> int:
        configs.append(config)
        return 0

    serve(remember, "--listen", "[::1]:0", "--data", "/srv/tenure", "--set", "num.partitions=3", "--set", "group.max.size=5")
    (config,) = configs
    assert (config.listeners[0].host, config.data_directory, config.num_partitions, config.group_max_size) == ("::1", "/srv/tenure", 3, 5)


def test_changed_settings_and_notices_are_logged(serve: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    def starting(config: Config) -> int:
        log_settings(config)
        return 0

    serve(starting, "--set", "num.partitions=3", "--set", "num.io.threads=9", "--listen", "10.0.0.1:9092")
    lines = events(capfd.readouterr().err)
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "setting"),
        ("info", "setting"),
        ("warning", "setting without effect"),
        ("warning", "listeners can be reached from other machines: every client that reaches the port may do everything"),
    ]
    assert {key: lines[2][key] for key in ("setting", "value", "source")} == {"setting": "num.io.threads", "value": "9", "source": "--set"}
    assert lines[3]["listeners"] == "PLAINTEXT://10.0.0.1:9092"
    assert {key: lines[1][key] for key in ("name", "value", "default", "source")} == {
        "name": "num.partitions",
        "value": "3",
        "default": "1",
        "source": "--set",
    }


def test_wrong_settings_are_a_line_each_and_exit_code_78(serve: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert serve(succeed, "--listen", ":9092", "--set", "max.conections=1") == ExitCode.CONFIG
    output = capfd.readouterr()
    assert output.out == ""
    assert [line[:30] for line in output.err.splitlines()] == ["tenure: max.conections=1 (--se", "tenure: --listen :9092: client"]


def fails(error: Exception) -> Serve:
    def broker(config: Config) -> int:
        logs.log.info("starting")
        raise error

    return broker


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StartError("cannot listen on 127.0.0.1:9092: it is taken", ExitCode.LISTEN), 69, "cannot listen on 127.0.0.1:9092: it is taken"),
        (PermissionError(13, "Permission denied", "/srv/tenure"), 74, "/srv/tenure: Permission denied"),
        (OSError("odd"), 74, "odd"),
    ],
)
def test_a_start_that_fails_is_reported_in_one_line_after_the_log(
    serve: Callable[..., int], capfd: pytest.CaptureFixture[str], error: Exception, code: int, line: str
) -> None:
    assert serve(fails(error)) == code
    log, error_line = capfd.readouterr().err.splitlines()
    assert json.loads(log)["event"] == "starting"
    assert error_line == f"tenure: {line}"


def test_a_defect_leaves_its_traceback_in_the_log(serve: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert serve(fails(ZeroDivisionError("ours"))) == ExitCode.SOFTWARE
    (_, line) = events(capfd.readouterr().err)
    assert line["exception"].endswith("ZeroDivisionError: ours")


@pytest.mark.parametrize("ending", [None, StartError("no", ExitCode.LISTEN), ZeroDivisionError()])
def test_the_test_profiles_data_is_removed_with_the_process(serve: Callable[..., int], ending: Exception | None) -> None:
    directories: list[Path] = []

    def broker(config: Config) -> int:
        directories.append(Path(config.data_directory))
        (directories[0] / "__consumer_offsets-0").mkdir()
        if ending:
            raise ending
        return 0

    before = signal.getsignal(signal.SIGTERM)
    serve(broker, "--profile", "test")
    serve(lambda config: directories.append(Path(config.data_directory)) or 0, "--profile", "test")  # type: ignore[func-returns-value]
    assert directories[0].name.startswith(f"tenure-test-{os.getpid()}-")
    assert not any(directory.exists() for directory in directories)
    assert directories[0] != directories[1]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_given_data_folder_is_kept(serve: Callable[..., int], tmp_path: Path) -> None:
    def broker(config: Config) -> int:
        (Path(config.data_directory) / "kept").touch()
        return 0

    assert serve(broker, "--profile", "test", "--data", str(tmp_path)) == 0
    assert (tmp_path / "kept").exists()


def child(broker: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    code = f"import sys, types, os\nfake = types.ModuleType('broker.server')\n{broker}\nfake.serve = serve\nsys.modules['broker.server'] = fake\n"
    code += "import cli\nsys.exit(cli.main(sys.argv[1:]))"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    command = [*prefix, sys.executable, "-P", "-c", code, "serve", *arguments]
    return subprocess.Popen(command, env=plain | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sigterm_before_the_broker_handles_signals_stops_it_and_removes_test_data() -> None:
    broker = """
import time
from broker.settings.report import log_settings
from broker.runtime.start import early_stop_signals


def serve(config):
    print(config.data_directory, flush=True)
    while not early_stop_signals:
        time.sleep(0.01)
    return 0
"""
    process = child(broker, "--profile", "test")
    assert process.stdout is not None
    directory = Path(process.stdout.readline().rstrip("\n"))
    try:
        assert directory.is_dir()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 0
    assert not directory.exists()


def test_an_interrupt_before_the_broker_handles_it_is_quiet() -> None:
    process = child("def serve(config):\n    print('here', flush=True)\n    import time\n    time.sleep(30)", "--data", "/nowhere", "--set", "log.level=error")
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert (process.returncode, stderr) == (cli.INTERRUPTED, "")


def test_without_standard_error_no_log_line_is_written_to_a_data_file(tmp_path: Path) -> None:
    broker = (
        "def serve(config):\n    from broker.logging import logs\n"
        f"    with open({str(tmp_path / 'segment')!r}, 'w') as file:\n"
        "        logs.log.error('a line')\n        logs.close()\n        print(file.fileno(), flush=True)\n    return 0"
    )
    process = child(broker, prefix=("sh", "-c", 'exec "$@" 2>&-', "sh"))
    stdout, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert int(stdout) > 2
    assert (tmp_path / "segment").read_text() == ""


def test_a_port_without_host_is_answered_with_the_right_form(serve: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert serve(succeed, "--listen", "9000") == ExitCode.CONFIG
    assert capfd.readouterr().err == (
        "tenure: --listen 9000: the host is missing: write 127.0.0.1:9000, or 0.0.0.0:9000 for every address of this machine\n"
    )
