"""How far tests of random cases go: TEST_DEPTH=60 makes ten times as many."""

from __future__ import annotations

import os

DEPTH = int(os.environ.get("TEST_DEPTH", "6"))
