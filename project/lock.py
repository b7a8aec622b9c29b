"""Writes the locks from pyproject.toml: `make lock`, or `make lock UPGRADE=name` for the newest release of one package.

Without UPGRADE, pins that still match pyproject.toml stay; UPGRADE=all uses the newest releases of all packages. The locks contain the hashes
of the wheels for every system, but no address of a package index: each machine configures its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVING = "requirements/serving.txt"
DEVELOPMENT = "requirements/development.txt"
ANALYZE = "requirements/analyze.txt"
ANALYZE_NEWEST = "requirements/analyze-newest.txt"
DOCS = "requirements/docs.txt"
HEADER = "# Written by `make lock` from pyproject.toml; change that. Linux x86_64 and aarch64, macOS arm64, Python 3.11 and newer.\n"
COMPILE = [
    *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes", "--only-binary", ":all:"),
    *("--no-header", "--no-emit-index-url", "--no-emit-find-links", "--no-emit-build-options", "--system-certs"),
]


def main(upgrades: list[str]) -> int:
    upgrade_options = ["--upgrade"] if upgrades == ["all"] else [part for name in upgrades for part in ("--upgrade-package", name)]
    write(SERVING, ["pyproject.toml"], upgrade_options)
    # The development lock includes the serving packages, in the same versions.
    write(DEVELOPMENT, ["pyproject.toml", "--group", "development", "--constraints", SERVING], upgrade_options)
    # PySpark is published only as source.
    analyze = ["pyproject.toml", "--extra", "spark", "--group", "building", "--constraints", DEVELOPMENT, "--no-binary", "pyspark"]
    write(ANALYZE, [*analyze, "--group", "oldest"], upgrade_options)
    write(ANALYZE_NEWEST, analyze, upgrade_options)
    write(DOCS, ["--group", "docs"], upgrade_options)
    return 0


def write(lock: str, sources: list[str], upgrade_options: list[str]) -> None:
    subprocess.run([Path(sys.executable).parent / COMPILE[0], *COMPILE[1:], *upgrade_options, *sources, "--output-file", lock], cwd=ROOT, check=True)
    text = (ROOT / lock).read_text()
    pins = sum("==" in line and not line.startswith("#") for line in text.splitlines())
    (ROOT / lock).write_text(HEADER + text.removeprefix(HEADER))
    print(f"lock: {lock} has {pins} packages")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
