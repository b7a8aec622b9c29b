"""Spark's standalone cluster on 127.0.0.1: a master and two workers of the PySpark package, with a Python in which Tenure is not installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import distribution
from pathlib import Path

START_SECONDS = 120.0  # the machine may be busy
STOP_SECONDS = 20.0
WORKER_PACKAGES = ("numpy", "pyarrow", "cramjam", "google-crc32c")  # the requirements of docs/analyze.md for a worker
DRIVER_PACKAGES = ("jinja2", "markupsafe", "deltalake", "arro3-core", "typing_extensions", "deprecated", "wrapt", "pandas", "python-dateutil", "pytz", "tzdata")  # packages that a driver needs besides Spark's
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # quick to start, not to run long


def bare_python(folder: Path, *packages: str) -> Path:
    """An environment with these packages and nothing else; they are linked, not copied."""
    venv.create(folder, with_pip=False, symlinks=True)
    (inside,) = folder.glob("lib/python3.*/site-packages")
    for package in packages:
        installed = distribution(package)
        for name in {file.parts[0] for file in installed.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (inside / name).exists():
                (inside / name).symlink_to(str(installed.locate_file(name)))
    return folder / "bin" / "python"


def environment(**more: str) -> dict[str, str]:
    """The environment without the location of Tenure."""
    import pyspark

    inherited = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "HOME") if name in os.environ}
    home = str(Path(pyspark.__file__).parent)
    return inherited | {"SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"} | more


def spark_program(name: str) -> str:
    return f"{environment()['SPARK_HOME']}/bin/{name}"


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """The master's address. Each process runs in its empty folder."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        master = _start(folder / "master", started, "master.Master", "--port", "0")
        url = _await(folder / "master" / "log", started[-1], r"Starting Spark master at (spark://\S+)")
        assert master
        for number in (1, 2):
            home = folder / f"worker{number}"
            _start(home, started, "worker.Worker", "--cores", "1", "--memory", "600M", "--work-dir", str(home / "work"), url)
        for number in (1, 2):
            _await(folder / f"worker{number}" / "log", started[number], r"(Successfully registered) with master")
        yield url
    finally:
        for process in reversed(started):
            _end(process)


def _start(home: Path, started: list[subprocess.Popen[bytes]], name: str, *arguments: str) -> Path:
    home.mkdir(parents=True)
    command = [spark_program("spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
    settings = environment(SPARK_DAEMON_MEMORY="200m", SPARK_DAEMON_JAVA_OPTS=JVM, SPARK_LOG_DIR=str(home))
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    started.append(process)
    return home


def _await(log: Path, process: subprocess.Popen[bytes], pattern: str) -> str:
    until = time.monotonic() + START_SECONDS
    while (match := re.search(pattern, log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    return match[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and the executors that it started, which are in its session."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
