"""Writes the locks from pyproject.toml: `make lock`, or `make lock UPGRADE=name` to take the newest release of one package.

Without UPGRADE every pin that still fits stays as it is; UPGRADE=all takes the newest of everything. The locks hold the
hashes of every system's wheels and no address: where packages come from is each machine's own setting.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVING = "requirements/serving.txt"
DEVELOPMENT = "requirements/development.txt"
ANALYZE = "requirements/analyze.txt"
HEADER = "# Written by `make lock` from pyproject.toml; change that. Linux x86_64 and aarch64, macOS arm64, Python 3.11 and newer.\n"
COMPILE = [
    *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes", "--only-binary", ":all:"),
    *("--no-header", "--no-emit-index-url", "--no-emit-find-links", "--no-emit-build-options", "--system-certs"),
]


def main(upgrades: list[str]) -> int:
    newer = ["--upgrade"] if upgrades == ["all"] else [part for name in upgrades for part in ("--upgrade-package", name)]
    write(SERVING, ["pyproject.toml"], newer)
    # The development lock includes the serving packages, in the same versions.
    write(DEVELOPMENT, ["pyproject.toml", "--group", "development", "--constraints", SERVING], newer)
    # PySpark is published as sources alone.
    write(ANALYZE, ["pyproject.toml", "--extra", "analyze", "--group", "building", "--constraints", DEVELOPMENT, "--no-binary", "pyspark"], newer)
    return 0


def write(lock: str, sources: list[str], newer: list[str]) -> None:
    subprocess.run([Path(sys.executable).parent / COMPILE[0], *COMPILE[1:], *newer, *sources, "--output-file", lock], cwd=ROOT, check=True)
    text = (ROOT / lock).read_text()
    pins = sum("==" in line and not line.startswith("#") for line in text.splitlines())
    (ROOT / lock).write_text(HEADER + text.removeprefix(HEADER))
    print(f"lock: {lock} has {pins} packages")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
