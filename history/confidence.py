"""The confidence of a row."""

from __future__ import annotations

from typing import Final

EXACT: Final = "exact"  # from notes
STRONG: Final = "strong"  # inferred, other explanations are unlikely
WEAK: Final = "weak"
NONE: Final = "none"  # unknown
