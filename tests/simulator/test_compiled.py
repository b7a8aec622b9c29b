"""The simulator over compiled code: its runs equal those over the plain sources."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulator.planted import ROOT


@pytest.mark.skipif("COMPILED" not in os.environ, reason="for `make compiled-test`")
@pytest.mark.parametrize("arguments", [("--seed", "4"), ("--seed", "5"), ("--seed", "3", "--nodes", "3")])
def test_a_seed_gives_the_same_trace_on_compiled_code(arguments: tuple[str, ...]) -> None:
    digests = set()
    for packages, named in ((ROOT / os.environ["COMPILED"], "compiled, "), (ROOT, "plain, ")):
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "simulator", *arguments, "--quiet", "--events", "5000"],
            env={**os.environ, "PYTHONPATH": f"{packages}:{ROOT}"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        stdout_lines = ended.stdout.splitlines()
        assert stdout_lines[-1].startswith(named)
        digests.add(stdout_lines[0])
    assert len(digests) == 1
