"""Apache Spark and the jars of its Kafka connector: fetched once into `.cache` by `make spark-test`, never by a test.

PySpark is half a gigabyte and pure Python with jars, so it gets a folder beside `.venv` that every Python can use, instead of a
place in the lock that everybody installs.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.oracle import CACHE
from tests.running import ROOT

PINS = ROOT / "requirements" / "spark.txt"
JAVA_MIN = 17
FETCH_TIMEOUT_S = 600

# The connector of PySpark's own release is not in every mirror of Maven; this one works with it. Its dependencies are named here
# one by one, so that no parent of theirs is asked for either.
CONNECTOR = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0": "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    "org.apache.kafka:kafka-clients:3.9.2": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "org.apache.commons:commons-pool2:2.13.1": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
}


class Unavailable(Exception):
    """Why there is no Spark here."""


class Packages(NamedTuple):
    python: Path  # to be put on sys.path
    jars: tuple[Path, ...]


def version() -> str:
    found = re.search(r"^pyspark==(\S+)", PINS.read_text(), re.MULTILINE)
    assert found
    return found[1]


def folders() -> tuple[Path, Path]:
    connector = next(iter(CONNECTOR)).rpartition(":")[2]
    return CACHE / f"pyspark-{version()}", CACHE / f"spark-kafka-{connector}"


def find() -> Packages | str:
    """Where they are, or why a test has to be skipped."""
    try:
        check_java()
    except Unavailable as reason:
        return str(reason)
    for folder in folders():
        if not folder.is_dir():
            return f"Spark needs {folder.name} in .cache, and `make spark-test`, which fetches it, has not (it says why)"
    python, jars = folders()
    return Packages(python, tuple(sorted(jars.glob("*.jar"))))


def check_java() -> None:
    java = shutil.which("java")
    if java is None:
        raise Unavailable("Spark needs java, which is not on PATH")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise Unavailable(f"Spark needs Java {JAVA_MIN} or newer, and java says {said.partition(chr(10))[0]!r}")


def fetch() -> None:
    """What is missing; whole or not at all."""
    check_java()
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    for folder, fetched in zip(folders(), (fetch_python, fetch_jars), strict=True):
        if folder.is_dir():
            continue
        print(f"spark-test: fetching {folder.name} into .cache", flush=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            complete = fetched(Path(temporary))
            if not folder.is_dir():  # another process may have been faster
                complete.rename(folder)


def fetch_python(folder: Path) -> Path:
    """PySpark comes as a source distribution only: it is built here, with the setuptools of this environment."""
    pinned = ["--require-hashes", "--no-deps", "--no-build-isolation", "--requirement", str(PINS)]
    pip = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]
    run([*pip, "install", *pinned, "--target", str(folder / "python")], folder)
    return folder / "python"


def fetch_jars(folder: Path) -> Path:
    if shutil.which("mvn") is None:
        raise Unavailable("Spark needs its Kafka connector, and mvn, which fetches it, is not on PATH")
    (folder / "pom.xml").write_text(pom())
    run(["mvn", "-q", "-B", "dependency:copy"], folder)
    for coordinates, checksum in CONNECTOR.items():
        _, artifact, release = coordinates.split(":")
        jar = folder / "jars" / f"{artifact}-{release}.jar"
        if hashlib.sha256(jar.read_bytes()).hexdigest() != checksum:
            raise Unavailable(f"Spark's Kafka connector: {jar.name} is not the file that was tried")
    return folder / "jars"


def run(command: list[str], folder: Path) -> None:
    name = "pip" if "pip" in command else command[0]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Spark: {name} did not finish in {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise Unavailable(f"Spark: {name} could not fetch it: {(done.stdout + done.stderr).strip()[:300]}")


def pom() -> str:
    """Copies the jars without asking for what they depend on."""
    items = ""
    for coordinates in CONNECTOR:
        group, artifact, release = coordinates.split(":")
        items += f"<artifactItem><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{release}</version></artifactItem>"
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tenure</groupId><artifactId>spark</artifactId><version>1</version><packaging>pom</packaging><build><plugins><plugin>"
        "<groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><configuration>"
        f"<outputDirectory>jars</outputDirectory><artifactItems>{items}</artifactItems></configuration>"
        "</plugin></plugins></build></project>"
    )


def main() -> int:
    try:
        fetch()
    except Unavailable as reason:
        print(f"spark-test: {reason}", file=sys.stderr)  # the tests skip, and say so
    return 0


if __name__ == "__main__":
    sys.exit(main())
