"""The key of a group in the document of the report: names of groups are unique only within a cluster."""

from __future__ import annotations

from typing import Any, TypeAlias

GroupKey: TypeAlias = tuple[str, str]  # cluster and group


def group_key(row: dict[str, Any]) -> GroupKey:
    return row["cluster"], row["group"]
