"""Apache Kafka, if Java is installed: its jars, from Maven, and a way to run their classes.

A test that needs it calls `kafka_jars()` or `run_java()`, which skip the test with the reason if it is not available. The jars are
fetched once into `.cache/kafka-VERSION`; KAFKA_JARS names a folder of jars to use instead.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cache import CACHE, Unavailable, cached, run_maven

KAFKA_VERSION = "4.3.1"
NEWEST_VERSION = "4.4.0"  # has no kafka-tools in Maven
FETCH_TIMEOUT_S = 300
LOG4J = (
    ("org.apache.logging.log4j", "log4j-core", "2.24.3"),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
JAVA = ("java", "-Xmx512m", "-Xshare:auto", "-XX:TieredStopAtLevel=1")  # quick to start, not to run long


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder of Kafka's jars; skips the test if they are not available."""
    jars = find_jars(version)
    if isinstance(jars, str):
        pytest.skip(jars)
    return jars


@functools.cache
def find_jars(version: str = KAFKA_VERSION) -> Path | str:
    """The folder of Kafka's jars, or why there is none."""
    if shutil.which("java") is None:
        return "Kafka as oracle needs java, which is not on PATH"
    if path := os.environ.get("KAFKA_JARS"):
        return Path(path)
    try:
        return cached(CACHE / f"kafka-{version}", functools.partial(fetch_jars, version=version))
    except Unavailable as reason:
        return str(reason)


def fetch_jars(folder: Path, version: str = KAFKA_VERSION) -> Path:
    if shutil.which("mvn") is None:
        raise Unavailable("Kafka as oracle needs its jars, and mvn, which fetches them, is not on PATH")
    (folder / "pom.xml").write_text(pom(version))
    run_maven("Kafka as oracle", "dependency:copy-dependencies", "-DoutputDirectory=libs", folder=folder, timeout_s=FETCH_TIMEOUT_S)
    return folder / "libs"


def pom(version: str) -> str:
    artifacts = ("kafka_2.13", "kafka-tools") if version == KAFKA_VERSION else ("kafka_2.13",)
    dependencies = (*(("org.apache.kafka", artifact, version) for artifact in artifacts), *LOG4J)
    listed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in dependencies
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tenure</groupId><artifactId>oracle</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{listed}</dependencies></project>"
    )


def run_java(*arguments: str | Path, timeout: float = 60, cwd: Path | None = None, version: str = KAFKA_VERSION) -> str:
    """The output of `java -cp JARS ARGUMENTS...`: a class of Kafka's with its arguments, or the path of one .java file."""
    jars = kafka_jars(version)
    command = [*JAVA, "-cp", f"{jars}/*", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{arguments[0]} exited with {done.returncode}: {done.stderr or done.stdout}"
    return done.stdout
