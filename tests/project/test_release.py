"""What `make dist` adds to the archives: the bill of materials and the checksums, and what a release still lacks."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from project import release
from project.compiled import GLIBC_OLDEST, platform_tag
from project.install import ANALYZE, SERVING
from project.installers import pins
from project.sbom import commit_time, document, pinned
from tenure import __version__
from tests.running import ROOT

pytestmark = pytest.mark.once
WHEN = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return document(WHEN)


def test_the_bill_names_every_locked_package_once_with_its_wheels(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["timestamp"]) == ("CycloneDX", "1.6", "2026-11-30T00:00:00Z")
    scopes = {component["name"]: component["scope"] for component in bill["components"]}
    assert {name for name, scope in scopes.items() if scope == "required"} == set(pins(SERVING))
    assert scopes.keys() == (pins(ANALYZE) | pins(SERVING)).keys() - {"setuptools"}
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(set(references)) == len(references)
    for component in bill["components"]:
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        assert all(re.fullmatch("[0-9a-f]{64}", file["hashes"][0]["content"]) for file in component["externalReferences"])
    hashes = sum(len(component["externalReferences"]) for component in bill["components"] if component["scope"] == "required")
    assert hashes == SERVING.read_text().count("--hash=sha256:")


def test_the_bill_has_the_licence_of_everything_that_serving_needs(bill: dict[str, Any]) -> None:
    required = [component for component in bill["components"] if component["scope"] == "required"]
    assert all(component["licenses"][0]["expression"] for component in required)
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]


def test_the_bill_says_what_needs_what(bill: dict[str, Any]) -> None:
    needs = {entry["ref"]: {re.sub(r"pkg:pypi/|@.*", "", reference) for reference in entry["dependsOn"]} for entry in bill["dependencies"]}
    ours = needs[f"pkg:pypi/tenure@{__version__}"]
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split("[>; ]", text)[0] for text in declared["dependencies"]} | {"deltalake", "pandas", "pyspark"} <= ours
    assert "py4j" not in ours
    (pyspark,) = [needed for reference, needed in needs.items() if reference.startswith("pkg:pypi/pyspark@")]
    assert pyspark == {"py4j"}


def test_the_same_commit_has_the_same_bill(bill: dict[str, Any]) -> None:
    assert document(WHEN) == bill
    assert document(datetime(2026, 12, 1, tzinfo=UTC))["serialNumber"] != bill["serialNumber"]


def test_a_pin_has_its_marker_and_its_reasons(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("# lock\na-b==1.0 ; python_version < '3.12' \\\n    --hash=sha256:" + "0" * 64 + "\n    # via\n    #   -c other.txt\n    #   tenure (pyproject.toml)\n    #   c[d]\nc==2\n    # via tenure (pyproject.toml)\n")
    first, second = pinned(lock)
    assert (first.name, first.version, first.marker, first.hashes, first.via) == ("a-b", "1.0", 'python_version < "3.12"', ("0" * 64,), ("c", "tenure"))
    assert (second.marker, second.via) == ("", ("tenure",))


def test_a_release_has_a_bill_and_checksums_of_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tenure.whl").write_bytes(b"wheel")
    for _ in range(2):
        assert release.main([str(tmp_path)]) == 0
    lines = {name: digest for digest, name in (line.split("  ") for line in (tmp_path / "SHA256SUMS").read_text().splitlines())}
    bill = f"tenure-{__version__}.cdx.json"
    assert lines.keys() == {"tenure.whl", bill}
    assert lines["tenure.whl"] == hashlib.sha256(b"wheel").hexdigest()
    assert json.loads((tmp_path / bill).read_text())["bomFormat"] == "CycloneDX"
    assert f"{__version__}" in capsys.readouterr().out.splitlines()[-1]
    if shutil.which("sha256sum"):
        assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=False).returncode == 0


def test_a_bill_needs_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert abs((commit_time() - datetime.now(UTC)).total_seconds()) < 3600
    assert release.lacks_in_repository() == [f"the tag v{__version__} is not at this commit"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert commit_time() == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("heading", "ready"),
    [(f"## {__version__}, 2026-11-30", True), ("## Unreleased", False), ("## 0.0.9, 2026-11-30", False), (f"## {__version__}", False), ("", False)],
)
def test_a_release_has_its_version_and_date_in_the_changelog(heading: str, ready: bool) -> None:
    assert (release.lacks_in_changelog(f"# Changelog\n\n{heading}\n\n## 0.0.1, 2026-01-01\n") == []) == ready


def test_the_image_of_the_manifests_has_the_version_of_the_project() -> None:
    text = (ROOT / "docker/kubernetes/kustomization.yaml").read_text()
    assert re.findall(r"newTag: (\S+)", text) == [__version__]


def test_a_compiled_wheel_names_the_glibc_that_its_modules_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("project.compiled.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr("project.compiled.machine", lambda: "x86_64")
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "log.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\0GLIBC_2.2.5\0GLIBC_2.3.4\0")
    assert platform_tag(tmp_path) == f"manylinux_2_{GLIBC_OLDEST}_x86_64"
    (tmp_path / "tenure__mypyc.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_PRIVATE\0")
    assert platform_tag(tmp_path) == "manylinux_2_34_x86_64"
    monkeypatch.setattr("project.compiled.libc_ver", lambda: ("", ""))
    assert platform_tag(tmp_path) == ""
