"""`make demo` serves until a signal ends it, and its broker with it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka_process import free_ports
from tests.running import ROOT, environment, wait_until

pytestmark = pytest.mark.once

SERVE = """
import asyncio, sys
from project.demo import serve
listen, data = sys.argv[1:]
sys.exit(asyncio.run(serve([sys.executable, "-P", "-m", "tenure", "serve", "--data", data, "--listen", listen, "--exit-with-parent"], listen, [])))
"""


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_and_its_broker_in_order(tmp_path: Path, number: signal.Signals) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", SERVE, f"127.0.0.1:{port}", str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        try:
            wait_until(lambda: answers(port) or demo.poll() is not None, 30)
            demo.send_signal(number)
            output = demo.communicate(timeout=30)[0]
        finally:
            demo.kill()
    assert demo.returncode == 0, output
    assert '"event": "stopped"' in output
    assert not answers(port)
