"""`make spark-test` installs Chromium with this program where it is missing: python -m tests.pipeline.browser"""

from __future__ import annotations

import sys

from project.browser import find
from tests.installing import install


def main() -> int:
    problem = "" if find() is not None else install("chromium")
    if problem:
        print(f"spark-test: no Chromium on PATH, and {problem}; the report's tests in a browser are skipped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
