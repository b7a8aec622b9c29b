"""Programs of the system that tests drive, installed where they are missing and Debian's package manager is at hand."""

from __future__ import annotations

import os
import shutil
import subprocess

OPTIONS = ("install", "--yes", "--quiet=2", "--no-install-recommends")
TIMEOUT_S = 600


def install(package: str) -> str:
    """Install the package; returns why this failed, or "" if it is installed."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get that would install it"
    first = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    if first and (shutil.which("sudo") is None or not runs([*first, "true"])):
        return f"only root may install it (Debian: apt install {package})"
    print(f"spark-test: installing {package}", flush=True)
    runs([*first, "apt-get", "update", "--quiet=2"])
    return "" if runs([*first, "apt-get", *OPTIONS, package]) else f"apt-get could not install {package}"


def runs(command: list[str]) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
