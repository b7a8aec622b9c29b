"""The confidence of a row."""

from __future__ import annotations

from typing import Final

EXACT: Final = "exact"  # from notes
STRONG: Final = "strong"  # inferred, with hardly any alternative
WEAK: Final = "weak"
NONE: Final = "none"  # unknown
