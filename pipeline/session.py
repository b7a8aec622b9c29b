"""A SparkSession for analyses, on this machine or a cluster, with the code that its workers need."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

JAVA_MIN: Final = 17
PACKAGES: Final = ("protocol", "storage", "coordinator", "history", "secured", "pipeline", "pyspark_koffsets", "tenure")  # imported by workers
SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",  # of blocks, which are large
    "spark.sql.shuffle.partitions": "24",  # of a few chunks: many partitions, so that few of them meet
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    "spark.log.level": "ERROR",
}
NO_SPARK_HINT: Final = "--master none needs neither PySpark nor Java"
LOCAL_MASTER: Final = "local[*]"
GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"  # an environment variable set by spark-submit, which has started a JVM with its master
ROOT: Final = Path(__file__).resolve().parents[1]  # of the packages: a folder, or a zip archive passed to spark-submit
WORKERS_PYTHON: Final = "spark.pyspark.python"
LOOPBACK: Final = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class SparkFailed(Exception):
    """Spark gave a job up; the text is the reason, in one line."""


class NoSpark(Exception):
    """A requirement of Spark is missing; the text is the remedy, in one line."""


@contextmanager
def session(master: str | None = None, settings: Mapping[str, str] | None = None, *, remote: str | None = None) -> Iterator[Any]:
    """Start Spark; the default master is spark-submit's or this machine. `remote`: the address of a Spark Connect server instead.

    Raises NoSpark if PySpark or Java is missing.
    """
    if remote is not None:
        with connected(remote, settings or {}) as spark:
            yield spark
        return
    check_requirements()
    from pyspark.sql import SparkSession

    master = master or ("" if GATEWAY_PORT in os.environ else LOCAL_MASTER)
    local = master.startswith("local")
    with tempfile.TemporaryDirectory(prefix="tenure-analyze-", ignore_cleanup_errors=True) as folder:
        spark_settings = {**SETTINGS, **(LOOPBACK if local else {}), "spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        spark_settings |= settings or {}
        if local:
            os.environ["PYSPARK_PYTHON"] = str(write_worker_script(Path(folder) / "python"))
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        elif WORKERS_PYTHON in spark_settings:  # PySpark reads it only from the environment
            os.environ["PYSPARK_PYTHON"] = spark_settings[WORKERS_PYTHON]
        if not (local and ROOT.is_dir()):
            code = write_code(ROOT, Path(folder) / "tenure-code.zip") if ROOT.is_dir() else ROOT
            # The process that plans a stream, on this machine, gets no files that are sent to executors.
            spark_settings["spark.executorEnv.PYTHONPATH"] = str(code)
            if not _is_submitted():
                spark_settings |= {"spark.files": str(code), "spark.submit.pyFiles": str(code)}
        builder = SparkSession.builder.appName("tenure analyze")
        for name, value in {**spark_settings, **({"spark.master": master} if master else {})}.items():
            builder = builder.config(name, value)
        log = Path(folder) / "spark.log"
        try:
            with stderr_to_file(log), _keep_interrupt_handler():
                spark = builder.getOrCreate()
        except Exception as error:
            last_log_line = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
            message = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise NoSpark(f"Spark does not start with --master {master or 'of spark-submit'}: {' '.join([message, *last_log_line])[:300]}") from error
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep the Ctrl-C handler: PySpark's would call the JVM from a signal handler, possibly during another call."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


@contextmanager
def connected(remote: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """A session of Spark Connect, whose server and workers get the project's code."""
    if find_spec("pyspark") is None or find_spec("grpc") is None:
        raise NoSpark("Spark Connect needs pyspark[connect], which is not installed: pip install 'tenure[connect]' adds it")
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="tenure-analyze-", ignore_cleanup_errors=True) as folder:
        if remote.startswith("local"):  # a server of its own, on this machine
            os.environ["PYSPARK_PYTHON"] = str(write_worker_script(Path(folder) / "python"))
        try:
            builder = SparkSession.builder.remote(remote)
            for name, value in settings.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
            code = write_code(ROOT, Path(folder) / "tenure-code.zip") if ROOT.is_dir() else ROOT
            spark.addArtifacts(str(code), pyfile=True)
        except Exception as error:
            raise NoSpark(f"Spark Connect at {remote} does not answer: {(str(error).strip().splitlines() or [type(error).__name__])[0][:300]}") from error
        try:
            yield spark
        finally:
            spark.stop()


def _is_submitted() -> bool:
    """Whether spark-submit started this process with the project's code for its workers."""
    return not ROOT.is_dir() and ROOT.name in os.environ.get("PYTHONPATH", "")


def write_worker_script(path: Path) -> Path:
    """Write the script that Spark starts as Python worker of a local master.

    It runs this interpreter, without packages from the working directory. Its PYTHONPATH replaces Spark's, which contains zip archives:
    Python would read their directories again in every task.
    """
    variables = f"PYTHONPATH={shlex.quote(os.pathsep.join(_import_folders()))}"
    path.write_text(f'#!/bin/sh\n{variables} exec {shlex.join([sys.executable, "-P"])} "$@"\n')
    path.chmod(0o755)
    return path


def _import_folders() -> list[str]:
    """The folders with Tenure, PySpark and Py4J, except those that the interpreter searches anyway."""
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if ROOT.is_dir():
        folders.append(str(ROOT))
    for package in ("pyspark", "py4j"):
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            folders.append(str(Path(spec.origin).parents[1]))
    default_folders = {*site.getsitepackages(), site.getusersitepackages()}
    return [folder for folder in dict.fromkeys(folders) if folder not in default_folders]


@contextmanager
def stderr_to_file(log: Path) -> Iterator[None]:
    """Redirect standard error to a file, for the JVM started here and its workers: it must not mix with the progress bar."""
    sys.stderr.flush()
    original = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)


def check_requirements() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise NoSpark(f"Spark needs PySpark, which is not installed: pip install 'tenure[spark]' adds it, in a checkout `make setup-analyze`; {NO_SPARK_HINT}")
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    remedy = f"install Java {JAVA_MIN} or newer (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    if java is None:
        raise NoSpark(f"Spark needs Java, which was not found {f'in {home}' if home else 'on PATH'}; {remedy}; {NO_SPARK_HINT}")
    version_text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if match is None or int(match[1]) < JAVA_MIN:
        raise NoSpark(f"Spark needs Java {JAVA_MIN} or newer, and {java} {f'is version {match[1]}' if match else 'prints no version'}; {remedy}; {NO_SPARK_HINT}")


def write_code(root: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.suffix in (".py", ".html", ".css", ".js", ".json", ".toml") and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(root))
    return path
