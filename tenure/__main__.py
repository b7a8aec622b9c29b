"""`python -m tenure` is `tenure`."""

from __future__ import annotations

import sys

from tenure.start import main

if __name__ == "__main__":
    sys.exit(main())
