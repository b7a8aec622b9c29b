"""The bill of materials of a release, in CycloneDX's JSON.

It names what serving installs (required) and what the extras `analyze` and `spark` add (optional), as the locks pin them: version, licence,
and the hashes of every wheel that may be installed. The same commit gives the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from project.licences import licence
from tenure import __version__

ROOT = Path(__file__).resolve().parents[1]
SERVING = ROOT / "requirements" / "serving.txt"
ANALYZE = ROOT / "requirements" / "analyze.txt"
BUILDING = {"setuptools"}  # of the lock, and only there to build PySpark
SPEC = "1.6"


class Pin(NamedTuple):
    name: str
    version: str
    marker: str  # for which Pythons and systems; "": for all
    hashes: tuple[str, ...]
    via: tuple[str, ...]  # the packages that need it; `tenure` if pyproject.toml names it

    @property
    def url(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def document(when: datetime) -> dict[str, Any]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    serving = list(pinned(SERVING))
    required = {pin.url for pin in serving}
    pins = serving + [pin for pin in pinned(ANALYZE) if pin.url not in required and pin.name not in BUILDING]
    ours = {
        "type": "application",
        "bom-ref": f"pkg:pypi/tenure@{__version__}",
        "name": declared["name"],
        "version": __version__,
        "description": declared["description"],
        "licenses": [{"expression": declared["license"]}],
        "purl": f"pkg:pypi/tenure@{__version__}",
    }
    components = [component(pin, "required" if pin.url in required else "optional") for pin in sorted(pins)]
    content = {
        "metadata": {"timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": ours},
        "components": components,
        "dependencies": dependencies(str(ours["bom-ref"]), pins),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": SPEC, "serialNumber": f"urn:uuid:{serial}", "version": 1, **content}


def component(pin: Pin, scope: str) -> dict[str, Any]:
    described: dict[str, Any] = {"type": "library", "bom-ref": pin.url, "name": pin.name, "version": pin.version, "scope": scope}
    if expression := licence_of(pin.name):
        described["licenses"] = [{"expression": expression}]
    described["purl"] = pin.url
    # A package has one hash of its own only if it has one wheel; CycloneDX has room for the hash of each file in a reference.
    described["externalReferences"] = [
        {"type": "distribution", "url": pin.url, "comment": "one of its files", "hashes": [{"alg": "SHA-256", "content": digest}]} for digest in pin.hashes
    ]
    if pin.marker:
        described["properties"] = [{"name": "tenure:marker", "value": pin.marker}]
    return described


def licence_of(name: str) -> str:
    """The licence in the metadata of the installed package. What development does not install (pandas, pyspark) has none here."""
    try:
        return licence(metadata(name))
    except PackageNotFoundError:
        return ""


def dependencies(ours: str, pins: list[Pin]) -> list[dict[str, Any]]:
    references: dict[str, list[str]] = {"tenure": [ours]}
    for pin in pins:
        references.setdefault(pin.name, []).append(pin.url)
    needs: dict[str, set[str]] = {reference: set() for several in references.values() for reference in several}
    for pin in pins:
        for parent in pin.via:
            for reference in references.get(parent, ()):
                needs[reference].add(pin.url)
    return [{"ref": reference, "dependsOn": sorted(needed)} for reference, needed in sorted(needs.items())]


def pinned(lock: Path) -> Iterator[Pin]:
    for block in re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]:
        requirement = Requirement(block.splitlines()[0].removesuffix("\\").strip())
        (specifier,) = requirement.specifier
        comments = re.findall(r"^    #(?: via)? +(\S+)", block, re.MULTILINE)
        via = tuple(sorted({canonicalize_name(parent.split("[")[0]) for parent in comments if parent not in ("via", "-c")}))
        yield Pin(requirement.name, specifier.version, str(requirement.marker or ""), tuple(re.findall(r"sha256:([0-9a-f]{64})", block)), via)


def commit_time() -> datetime:
    """SOURCE_DATE_EPOCH, or when the commit was made, or now outside a repository."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)


def git(*arguments: str) -> str:
    """What git prints; nothing without git or outside a repository."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
