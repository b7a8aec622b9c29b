"""The Apache Kafka release that introduced each version of each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cli.failure import Exit, Failure

Release = tuple[int, int]

OLDEST: Final[Release] = (2, 4)
# ListConfigResources does not show the release: Tenure serves it as Kafka 4.1, and all other requests as Kafka 4.0.
LIST_CONFIG_RESOURCES: Final = 74
# (key, version): release. Kafka 2.4 serves all others.
SINCE: Final[dict[tuple[int, int], Release]] = {
    (0, 9): (2, 8), (0, 10): (3, 7), (0, 11): (3, 8), (0, 12): (4, 0), (0, 13): (4, 1),
    (1, 12): (2, 7), (1, 13): (3, 1), (1, 14): (3, 5), (1, 15): (3, 5), (1, 16): (3, 7), (1, 17): (3, 9), (1, 18): (4, 1),
    (2, 6): (2, 8), (2, 7): (3, 0), (2, 8): (3, 5), (2, 9): (3, 9), (2, 10): (4, 0), (2, 11): (4, 2),
    (3, 10): (2, 8), (3, 11): (2, 8), (3, 12): (3, 1), (3, 13): (4, 0),
    (8, 9): (3, 7), (8, 10): (4, 2),
    (9, 7): (2, 5), (9, 8): (3, 0), (9, 9): (3, 7), (9, 10): (4, 2),
    (10, 4): (3, 0), (10, 5): (3, 8), (10, 6): (3, 9),
    (11, 7): (2, 5), (11, 8): (3, 2), (11, 9): (3, 2),
    (13, 5): (3, 2),
    (14, 5): (2, 5),
    (15, 6): (4, 0),
    (16, 4): (2, 6), (16, 5): (3, 8),
    (18, 4): (3, 9),
    (19, 6): (2, 7), (19, 7): (2, 8),
    (20, 5): (2, 7), (20, 6): (2, 8),
    (21, 2): (2, 6),
    (22, 3): (2, 5), (22, 4): (2, 7), (22, 5): (3, 8),
    (23, 4): (2, 8),
    (24, 4): (3, 6),
    (29, 2): (2, 5), (29, 3): (3, 3),
    (32, 3): (2, 6), (32, 4): (2, 8),
    (33, 2): (2, 8),
    (35, 2): (2, 6), (35, 3): (3, 2), (35, 4): (3, 3), (35, 5): (4, 3),
    (37, 2): (2, 5), (37, 3): (2, 7),
    (48, 0): (2, 6),
    (60, 0): (2, 8), (60, 1): (3, 7), (60, 2): (4, 0),
    (68, 0): (3, 7), (68, 1): (4, 0),
    (69, 0): (3, 8), (69, 1): (4, 0),
    (74, 0): (3, 7), (74, 1): (4, 1),
    (75, 0): (3, 9),
}  # fmt: skip


def first_release_with(key: int, version: int) -> Release:
    return SINCE.get((key, version), OLDEST)


def matching_release(versions: Mapping[int, tuple[int, int]]) -> Release | None:
    """The oldest Kafka release that has the newest version of every request that the broker serves; None for brokers older than 2.4."""
    if versions.get(47) is None:  # OffsetDelete came with 2.4
        return None
    newest_versions = ((key, newest) for key, (_, newest) in versions.items() if key != LIST_CONFIG_RESOURCES)
    return max((first_release_with(*version) for version in newest_versions if version in SINCE), default=OLDEST)


def release_text(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def unsupported(endpoint: str, name: str, key: int, offered: tuple[int, int] | None, known: tuple[int, int], oldest: int) -> Failure:
    """The Failure for a request that the broker does not serve in a usable version."""
    needed = release_text(first_release_with(key, max(oldest, known[0])))
    if offered is None:
        return Failure(Exit.UNSUPPORTED, f"{endpoint} does not serve {name}; Kafka {needed} and later do")
    served = range_text(*offered)
    if offered[0] > known[1]:
        return Failure(Exit.UNSUPPORTED, f"{endpoint} serves {name} only in {served}, this command knows {range_text(*known)}: use a newer tenure")
    needed_version = max(oldest, known[0])
    return Failure(Exit.UNSUPPORTED, f"{endpoint} serves {name} only in {served}, this needs version {needed_version}; Kafka {needed} and later have it")


def range_text(oldest: int, newest: int) -> str:
    return f"version {oldest}" if oldest == newest else f"versions {oldest} to {newest}"
