"""A SparkSession for analyses: a laptop with nothing to configure, or a cluster, with the code that its workers need."""

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
PACKAGES: Final = ("protocol", "storage", "coordinator", "history", "pipeline")  # imported by a worker
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
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # in the environment: spark-submit has started a JVM, and passed it the master
ROOT: Final = Path(__file__).resolve().parents[1]  # of the packages; a zip archive if spark-submit was given one
WORKERS_PYTHON: Final = "spark.pyspark.python"
ALONE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class NoSpark(Exception):
    """A missing requirement of Spark and how to get it, in one line."""


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
            os.environ["PYSPARK_PYTHON"] = str(write_worker_script(Path(folder) / "python"))
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
            if not (local and ROOT.is_dir()):
                _ship(spark.sparkContext, Path(folder))
            yield spark
        finally:
            spark.stop()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep our Ctrl-C handler: PySpark's would call the JVM from within a signal, possibly during another call."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _ship(context: Any, folder: Path) -> None:
    """Send the code to executors that have only Python and the listed packages."""
    if ROOT.is_dir():
        context.addPyFile(str(write_code(ROOT, folder / "tenure-code.zip")))
    elif ROOT.name not in context.getConf().get("spark.submit.pyFiles", ""):  # spark-submit has not shipped this zip already
        context.addPyFile(str(ROOT))


def write_worker_script(path: Path) -> Path:
    """Write the program that Spark starts as Python worker of a local master.

    It runs this interpreter, not the first `python3` on PATH, and imports no package from the working directory. Its PYTHONPATH
    replaces that of Spark, which names zip archives: Python reads the directory of each archive again in every task.
    """
    variables = f"PYTHONPATH={shlex.quote(os.pathsep.join(_import_folders()))}"
    path.write_text(f'#!/bin/sh\n{variables} exec {shlex.join([sys.executable, "-P"])} "$@"\n')
    path.chmod(0o755)
    return path


def _import_folders() -> list[str]:
    """Where a local worker finds Tenure, PySpark and Py4J, besides the folders that this interpreter always searches."""
    folders = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    if ROOT.is_dir():
        folders.append(str(ROOT))
    for package in ("pyspark", "py4j"):
        found = find_spec(package)
        if found is not None and found.origin is not None:
            folders.append(str(Path(found.origin).parents[1]))
    always = {*site.getsitepackages(), site.getusersitepackages()}
    return [folder for folder in dict.fromkeys(folders) if folder not in always]


@contextmanager
def chatter_in(log: Path) -> Iterator[None]:
    """The JVM that is started here, and its workers, write their standard error there: it must not mix with the progress bar."""
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
