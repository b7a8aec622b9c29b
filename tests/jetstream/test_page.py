"""The trial of docs/cluster.md, run as on the page: three nodes over three nats-servers, of which one each is killed under two consumers and a producer."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.listings import listings
from tests.running import ROOT, environment

pytestmark = [pytest.mark.jetstream, pytest.mark.once]

PAGE = ROOT / "docs" / "cluster.md"
PORTS = re.compile(r"(?<=127\.0\.0\.1:)(?=[4689][20][29])")  # of four digits, some ending in a sum
MARK = "=== listing"
SECONDS = 400
# Whatever the script does, its processes end with it.
AROUND = "trap 'kill -9 $(cat trial/*.pid 2> trial/missing) 2> /dev/null' EXIT\nset -u\n"


def free_prefix() -> str:
    """A digit in front of the page's ports, so that all of them are free."""
    for prefix in "2345":
        ports = [int(f"{prefix}{port}{number}") for port in (422, 622, 822, 909) for number in (2, 3, 4)]
        taken = []
        for port in ports:
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", port)) == 0:
                    taken.append(port)
        if not taken:
            return prefix
    pytest.skip("other programs listen on ports near those of the page")


def numbers(text: str) -> list[int]:
    """The newest number that each consumer has printed, of those that the page's `tail` shows."""
    parts = re.split(r"^==> .* <==$", text, flags=re.MULTILINE)[1:]
    return [max([int(line) for line in part.splitlines() if line.isdigit()], default=0) for part in parts]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks nats-server by curl")
def test_the_trial_of_the_page(tmp_path: Path) -> None:
    scripts = [listing.text for listing in listings(PAGE, "bash")]
    assert len(scripts) == 5
    prefix = free_prefix()
    script = AROUND + "".join(f"echo '{MARK}'\n{PORTS.sub(prefix, text)}" for text in scripts)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "tenure"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tenure "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment(PATH=path), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    _, start, killed_node, killed_engine, end = done.stdout.split(MARK)[1:]
    assert [word in start for word in ("Stable", "ledger-1", "ledger-2")] == [True] * 3, done.stdout
    assert [word in killed_node for word in ("not reachable from here", "ledger-1", "ledger-2")] == [True] * 3, done.stdout
    before, after_node, after_engine = (max(numbers(text), default=0) for text in (start, killed_node, killed_engine))
    assert 0 < before < after_node < after_engine, done.stdout
    assert not (tmp_path / "trial").exists(), end
