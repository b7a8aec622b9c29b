"""The number of random cases of a test: TEST_DEPTH=60 makes ten times as many."""

from __future__ import annotations

import os

DEPTH = int(os.environ.get("TEST_DEPTH", "6"))
