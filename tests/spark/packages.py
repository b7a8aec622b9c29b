"""The jars of Spark's connectors for Kafka and Delta Lake: fetched once into `.cache` by `make spark-test`, never by a test.

Which ones follows from the PySpark in the environment.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.installing import install
from tests.support.cache import CACHE, Unavailable, cached, run_maven

JAVA_MIN = 17
FETCH_TIMEOUT_S = 600

# The dependencies are named here one by one, so that no parent POM is fetched either.
CLIENT = {
    "org.apache.kafka:kafka-clients:3.9.2": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "org.apache.commons:commons-pool2:2.13.1": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
}
# With PySpark 4.1. The connector of 4.1.1 itself fails with a NullPointerException where a restarted query reports its progress; 4.1.3's does not.
OLDEST = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3": "cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.1": "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae",
    **CLIENT,
    "io.delta:delta-spark_4.1_2.13:4.3.1": "ebf35a4383f0a653c3ee3c7882c0edcac2f846be31ac61af4b96ccfaaf36c171",
    "io.delta:delta-storage:4.3.1": "577c12c7e371be4c041714fb48e88ad86e3c3512beea2bdaffbe7a4debf79718",
}
# With a newer one. The connector of its own release is not in every mirror of Maven; this one works with it.
NEWEST = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0": "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    **CLIENT,
}
NO_DELTA = "Delta Lake has no connector for this PySpark: it has one for PySpark 4.1"


def pyspark_version() -> str:
    """The version in the environment; empty if there is none."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return ""


def connectors() -> dict[str, str]:
    """The checksums of the jars by their coordinates."""
    return OLDEST if pyspark_version().startswith("4.1.") else NEWEST


def folder() -> Path:
    return CACHE / f"spark-connectors-{next(iter(connectors())).rpartition(':')[2]}"


def find() -> tuple[Path, ...] | str:
    """The paths of the jars, or the reason to skip a test."""
    try:
        check_java()
    except Unavailable as reason:
        return str(reason)
    if not pyspark_version():
        return "Spark needs PySpark in .venv: `make setup-analyze`"
    if not folder().is_dir():
        return f"Spark needs {folder().name} in .cache, and `make spark-test`, which fetches it, has not (it says why)"
    return tuple(sorted(folder().glob("*.jar")))


def check_java() -> None:
    java = shutil.which("java")
    if java is None:
        raise Unavailable("Spark needs java, which is not on PATH")
    version_text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', version_text)
    if match is None or int(match[1]) < JAVA_MIN:
        raise Unavailable(f"Spark needs Java {JAVA_MIN} or newer, and java says {version_text.partition(chr(10))[0]!r}")


def fetch() -> None:
    """Fetch the jars if the cache lacks them."""
    check_java()
    cached(folder(), fetch_jars)


def fetch_jars(into: Path) -> Path:
    print(f"spark-test: fetching {folder().name} into .cache", flush=True)
    problem = "" if shutil.which("mvn") else install("maven")
    if problem:
        raise Unavailable(f"Spark needs its connectors, and mvn, which fetches them, is not on PATH; {problem}")
    (into / "pom.xml").write_text(pom())
    run_maven("Spark", "dependency:copy", folder=into, timeout_s=FETCH_TIMEOUT_S)
    for coordinates, checksum in connectors().items():
        _, artifact, release = coordinates.split(":")
        jar = into / "jars" / f"{artifact}-{release}.jar"
        if hashlib.sha256(jar.read_bytes()).hexdigest() != checksum:
            raise Unavailable(f"Spark's connectors: {jar.name} is not the file that was tried")
    return into / "jars"


def pom() -> str:
    """A pom.xml that copies the jars without resolving their dependencies."""
    items = ""
    for coordinates in connectors():
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
        print(f"spark-test: {reason}", file=sys.stderr)  # the tests skip, with this reason
    return 0


if __name__ == "__main__":
    sys.exit(main())
