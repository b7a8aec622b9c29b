"""The messages of a test that needs Spark where it is unavailable; in `make test`, without Spark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.spark import packages

pytestmark = pytest.mark.once


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with the programs of the test."""
    monkeypatch.setattr(packages, "CACHE", tmp_path / "cache")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "cache"


def program(cache: Path, name: str, script: str) -> None:
    path = cache.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def java(cache: Path, version: str = "17.0.1") -> None:
    program(cache, "java", f"echo 'openjdk version \"{version}\"' >&2")


def test_without_java_the_tests_skip(cache: Path) -> None:
    assert packages.find() == "Spark needs java, which is not on PATH"


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", "nothing"])
def test_with_an_old_java_the_tests_skip(cache: Path, version: str) -> None:
    java(cache, version)
    assert str(packages.find()).startswith("Spark needs Java 17 or newer, and java says")


def test_before_anything_was_fetched_the_tests_skip_and_fetch_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(cache)
    monkeypatch.setattr(packages, "pyspark_version", lambda: "")
    assert packages.find() == "Spark needs PySpark in .venv: `make setup-analyze`"
    monkeypatch.setattr(packages, "pyspark_version", lambda: "4.3.0")
    assert f"Spark needs {packages.folder().name} in .cache" in str(packages.find())
    assert not cache.exists()


def test_without_maven_that_is_reported(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    java(cache)
    assert packages.main() == 0
    message = "spark-test: Spark needs its connectors, and mvn, which fetches them, is not on PATH; there is no apt-get that would install it\n"
    assert capsys.readouterr().err == message


def test_maven_is_installed_if_possible(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    java(cache)
    folder = cache.parent
    program(cache, "sudo", 'shift; exec "$@"')
    program(cache, "true", "")
    chmod = shutil.which("chmod", path=os.defpath)
    program(cache, "apt-get", f"echo $* >> {folder}/asked; printf '#!/bin/sh\nexit 1\n' > {folder}/bin/mvn; {chmod} +x {folder}/bin/mvn")
    assert packages.main() == 0
    assert (folder / "asked").read_text().splitlines() == ["update --quiet=2", "install --yes --quiet=2 --no-install-recommends maven"]
    assert capsys.readouterr().err.startswith("spark-test: Spark: mvn could not fetch it")


def test_a_failed_maven_download_is_reported_and_leaves_no_files(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    java(cache)
    program(cache, "mvn", "echo 'no such jar'; exit 1")
    assert packages.main() == 0
    assert capsys.readouterr().err == "spark-test: Spark: mvn could not fetch it: no such jar\n"
    assert not list(cache.iterdir())


def test_jars_of_other_versions_are_not_used(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    java(cache)
    jar_names = [f"{name.split(':')[1]}-{name.split(':')[2]}.jar" for name in packages.connectors()]
    mkdir = shutil.which("mkdir", path=os.defpath)
    program(cache, "mvn", f"{mkdir} jars; for jar in {' '.join(jar_names)}; do echo other > jars/$jar; done")
    assert packages.main() == 0
    assert "is not the file that was tried" in capsys.readouterr().err
    assert not packages.folder().exists()


def test_the_jars_follow_the_installed_pyspark(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {}
    for version in ("4.1.1", "4.1.4", "4.2.1", "4.3.0"):
        monkeypatch.setattr(packages, "pyspark_version", lambda version=version: version)
        names[version] = packages.folder().name, "delta-spark" in packages.pom()
    oldest, newest = ("spark-connectors-4.1.3", True), ("spark-connectors-4.2.0", False)
    assert names == {"4.1.1": oldest, "4.1.4": oldest, "4.2.1": newest, "4.3.0": newest}
