"""Settings of a broker as arguments of its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def given_settings(settings: Mapping[str, Any] | None) -> list[str]:
    return [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={text_of(value)}")]
