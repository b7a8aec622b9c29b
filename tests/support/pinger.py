"""A process that sends ApiVersions to a broker at a fixed pace: `python -m tests.support.pinger PORT PID`, until its input ends.

Then it prints two numbers in seconds: the longest wait for a reply, and the most processor time that the broker's loop used during one
request. The latter excludes the work of other processes; it covers the turn under way when the request arrives, and the turn of the reply.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protocol.messages.api_versions import ApiVersionsRequest
from tests.running import Client, environment

PACE_SECONDS = 0.002


def main_thread_cpu_seconds(pid: int) -> float:
    """Processor time of the main thread of this process, which runs the broker's loop."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def main(port: int, pid: int) -> None:
    longest = most = 0.0
    count = 0
    with Client(port, client_id="pinger") as client:
        client.ask(ApiVersionsRequest("pinger", "1"), 3)
        print("pinging", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            begin, before = time.monotonic(), main_thread_cpu_seconds(pid)
            client.ask(ApiVersionsRequest("pinger", "1"), 3)
            longest = max(longest, time.monotonic() - begin)
            most = max(most, main_thread_cpu_seconds(pid) - before)
            count += 1
            time.sleep(PACE_SECONDS)
    print(json.dumps({"longest": longest, "worked": most, "count": count}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))


@contextmanager
def pinging(port: int, pid: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-m", "tests.support.pinger", str(port), str(pid)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), cwd=os.sep)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "pinging\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def result_of(pinger: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = pinger.communicate("stop\n", timeout=10)
    result: dict[str, Any] = json.loads(output)
    return result


PAUSE_SECONDS_MAX = 0.050
