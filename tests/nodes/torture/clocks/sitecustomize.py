"""Gives a node process its own wall clock; Python imports this file at its start because its folder is on PYTHONPATH.

NODE_CLOCKS has milliseconds by node id, such as `2=-40000,3=90000`. Python code reads the wall clock with these two functions; the monotonic
clock, which is one for all processes of a machine, stays as it is.
"""

import os
import re
import sys
import time


def own_clock(skew_ms: int) -> None:
    time_ns, seconds = time.time_ns, time.time
    time.time_ns = lambda: time_ns() + skew_ms * 1_000_000
    time.time = lambda: seconds() + skew_ms / 1_000


words = " ".join(sys.orig_argv)
node = re.search(r"(?:node\.id=|--node-id )(\d+)", words)
if node is not None:
    skews = dict(entry.split("=") for entry in os.environ.get("NODE_CLOCKS", "").split(",") if entry)
    if node[1] in skews:
        own_clock(int(skews[node[1]]))
