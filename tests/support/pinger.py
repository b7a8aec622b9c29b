"""A process that asks a broker for its versions at a fixed pace: `python -m tests.support.pinger PORT PID`, until its input ends.

Then it prints, in seconds, the longest that an answer took, and the most that the broker's loop worked while one was awaited: on a busy
machine that is less, and what the broker can be held to. It is the turn under way and the turn of the answer.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from protocol.messages.api_versions import ApiVersionsRequest
from tests.running import Client

PACE_SECONDS = 0.002


def worked(pid: int) -> float:
    """Processor time of the thread of the loop."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def main(port: int, pid: int) -> None:
    longest = most = 0.0
    count = 0
    with Client(port, client_id="pinger") as client:
        client.ask(ApiVersionsRequest("pinger", "1"), 3)
        print("pinging", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            begin, before = time.monotonic(), worked(pid)
            client.ask(ApiVersionsRequest("pinger", "1"), 3)
            longest = max(longest, time.monotonic() - begin)
            most = max(most, worked(pid) - before)
            count += 1
            time.sleep(PACE_SECONDS)
    print(json.dumps({"longest": longest, "worked": most, "count": count}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
