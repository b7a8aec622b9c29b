"""A SparkSession for analyses: a laptop with nothing to configure, or a cluster, with the code that its workers need."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
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
PACKAGES: Final = ("protocol", "storage", "coordinator", "history", "pipeline")  # what a worker imports
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.log.level": "ERROR",
}
HERE: Final = "local[*]"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # in the environment: spark-submit has started a JVM, and has told it the master
WORKERS_PYTHON: Final = "spark.pyspark.python"
ALONE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class NoSpark(Exception):
    """In one line for people: what is missing, and how to get it."""


@contextmanager
def session(master: str | None = None, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Without a master: that of spark-submit, or this machine. Raises NoSpark where PySpark or Java is missing. The JVM ends with the process."""
    check()
    from pyspark.sql import SparkSession

    master = master or ("" if SUBMITTED in os.environ else HERE)
    local = master.startswith("local")
    with tempfile.TemporaryDirectory(prefix="tenure-analyze-", ignore_cleanup_errors=True) as folder:
        given = {**SETTINGS, **(ALONE if local else {}), "spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        given |= settings or {}
        if local:
            os.environ["PYSPARK_PYTHON"] = str(_worker(Path(folder) / "python"))
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        elif WORKERS_PYTHON in given:  # PySpark itself looks only into the environment
            os.environ["PYSPARK_PYTHON"] = given[WORKERS_PYTHON]
        builder = SparkSession.builder.appName("tenure analyze")
        for name, value in {**given, **({"spark.master": master} if master else {})}.items():
            builder = builder.config(name, value)
        log = Path(folder) / "spark.log"
        try:
            with chatter_in(log), _own_interrupts():
                spark = builder.getOrCreate()
        except Exception as error:
            last = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise NoSpark(f"Spark does not start with --master {master or 'of spark-submit'}: {' '.join([said, *last])[:300]}") from error
        try:
            _ship(spark.sparkContext, Path(folder))
            yield spark
        finally:
            spark.stop()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """What Ctrl-C does stays as it is: PySpark would call the JVM from within a signal, in the midst of another call."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _ship(context: Any, folder: Path) -> None:
    """The code, to executors, which have only Python and the listed packages."""
    root = Path(__file__).resolve().parents[1]
    if root.is_dir():
        context.addPyFile(str(write_code(root, folder / "tenure-code.zip")))
    elif root.name not in context.getConf().get("spark.submit.pyFiles", ""):  # it is a zip itself; spark-submit ships what it was given
        context.addPyFile(str(root))


def _worker(path: Path) -> Path:
    """What workers are started with: this Python, where Spark would take `python3` from PATH, and no package of the folder it is started in."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-P"])} "$@"\n')
    path.chmod(0o755)
    return path


@contextmanager
def chatter_in(log: Path) -> Iterator[None]:
    """The JVM that is started here, and its workers, write their standard error there: nobody should read it beside a progress bar."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def check() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise NoSpark("analyses need PySpark: pip install 'tenure[analyze]' (in a checkout: make setup-analyze)")
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    remedy = f"install Java {JAVA_MIN} or newer (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    if java is None:
        raise NoSpark(f"Spark needs Java, and there is none {f'in {home}' if home else 'on PATH'}; {remedy}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise NoSpark(f"Spark needs Java {JAVA_MIN} or newer, and {java} is {found[1] if found else 'none that says its version'}; {remedy}")


def write_code(root: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.suffix in (".py", ".html", ".css", ".js", ".json", ".toml") and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(root))
    return path
