"""Check the licence of every locked package by its installed metadata: `python -m project.licences`.

`make check` fails for a package whose licence is not listed here, also for a package used only in development.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"

# SPDX names. All permissive, except MPL-2.0: its copyleft ends at its own files, and we change none of them.
ALLOWED = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"}

# Accepted for development only, by package:
IN_DEVELOPMENT = {"crc32c": "LGPL-2.1-or-later"}  # computes kio's checksums: a separate library, which we neither change nor ship nor link

# Licence names in classifiers or `License` fields of packages without an SPDX expression, in lower case.
OTHER_NAMES = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",  # or BSD-2-Clause: the classifier is ambiguous, and both are allowed
    "gnu lesser general public license v2 or later (lgplv2+)": "LGPL-2.1-or-later",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}


def main(serving: Path = REQUIREMENTS / "serving.txt", development: Path = REQUIREMENTS / "development.txt") -> int:
    served_with = locked(serving)
    problems, judged, not_installable = [], 0, []
    for name, applies in sorted((locked(development) | served_with).items()):
        if not applies:
            not_installable.append(name)
            continue
        try:
            licence_name = licence(metadata(name))
        except PackageNotFoundError:
            problems.append(f"{name} is locked but not installed: run `make setup`")
            continue
        judged += 1
        if not allowed(licence_name) and (name in served_with or IN_DEVELOPMENT.get(name) != licence_name):
            problems.append(f"{name}: {licence_name or 'names no licence'}: not listed in project/licences.py")
    for problem in problems:
        print(f"licences: {problem}", file=sys.stderr)
    if not problems:
        unseen = f"; not on this system, so not judged: {', '.join(not_installable)}" if not_installable else ""
        print(f"licences: all {judged} locked packages may be used{unseen}")
    return 1 if problems else 0


def locked(lock: Path) -> dict[str, bool]:
    """Names of all pinned packages, and whether this Python on this system installs them."""
    installable: dict[str, bool] = {}
    for line in lock.read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            pin = Requirement(line.removesuffix("\\").strip())
            installable[pin.name] = installable.get(pin.name, False) or pin.marker is None or pin.marker.evaluate()  # one of several pins may be for older Pythons only
    return installable


def licence(package: PackageMetadata) -> str:
    """The package's SPDX expression, or one made from its classifiers or `License` field; '' if none is given."""
    if "License-Expression" in package:
        return package["License-Expression"]
    classifiers = [name.split(" :: ")[-1] for name in package.get_all("Classifier") or [] if name.startswith("License :: ")]
    free_text = package["License"].strip().splitlines() if "License" in package else []
    names = [name for name in classifiers if name != "OSI Approved"] or free_text[:1]
    return " AND ".join(OTHER_NAMES.get(name.lower(), name) for name in names)


def allowed(expression: str) -> bool:
    """Whether an SPDX expression is acceptable. Of an OR one side must be allowed, of an AND both; an exception (WITH) only adds rights."""
    parts = re.findall(r"[()]|[^()\s]+", expression)
    if not parts:
        return False
    try:
        verdict, remaining = parse_or(parts)
    except IndexError:
        return False
    return verdict and not remaining


def parse_or(parts: list[str]) -> tuple[bool, list[str]]:
    verdict, remaining = parse_and(parts)
    while remaining and remaining[0] == "OR":
        operand, remaining = parse_and(remaining[1:])
        verdict = verdict or operand
    return verdict, remaining


def parse_and(parts: list[str]) -> tuple[bool, list[str]]:
    verdict, remaining = parse_licence(parts)
    while remaining and remaining[0] == "AND":
        operand, remaining = parse_licence(remaining[1:])
        verdict = verdict and operand
    return verdict, remaining


def parse_licence(parts: list[str]) -> tuple[bool, list[str]]:
    if parts[0] == "(":
        verdict, remaining = parse_or(parts[1:])
        return verdict and remaining[0] == ")", remaining[1:]
    remaining = parts[3:] if parts[1:2] == ["WITH"] else parts[1:]
    return parts[0] in ALLOWED, remaining


if __name__ == "__main__":
    sys.exit(main())
