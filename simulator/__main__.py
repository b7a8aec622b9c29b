"""`python -m simulator --seed 7`: see docs/simulator.md."""

from __future__ import annotations

import signal
import sys

from simulator.command import main

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the command
    sys.exit(main(sys.argv[1:]))
