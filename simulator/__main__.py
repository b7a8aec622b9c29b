"""`python -m simulator --seed 7`: see docs/simulator.md."""

from __future__ import annotations

import sys

from simulator.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
