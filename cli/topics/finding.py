"""Topics named on the command line, and the Failure for unknown ones."""

from __future__ import annotations

import argparse
import difflib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from cli.client import Exit, Failure, check
from cli.client.words import json_code_of
from cli.failure import UNKNOWN_TOPIC
from cli.selection import check_selection, is_pattern, selected
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

RECHECK_SECONDS: Final = 0.2
PROPAGATION_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.02


def existing_topics(cluster: Cluster, names: Sequence[str]) -> tuple[dict[str, TopicInfo], list[str]]:
    """The existing topics in the order of `names`, and the names of missing ones. Raises Failure for an invalid name or an error of the cluster."""
    names = list(dict.fromkeys(names))
    topics = cluster.topics(names)
    if any(topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in topics.values()):
        time.sleep(RECHECK_SECONDS)  # another broker may have created it a moment ago: ask once more
        topics = cluster.topics(names)
    existing: dict[str, TopicInfo] = {}
    missing: list[str] = []
    for name in names:
        topic = topics.get(name)
        if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(name)
        elif topic.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
            line = f"topic {name!r} cannot exist: names have 1 to 249 letters, digits, dots, dashes and underscores"
            if "," in name:
                line = f"topic {name!r} cannot exist: separate several names with spaces"
            elif is_pattern(name):
                line = f"topic {name!r} cannot exist: patterns are for tenure topic list, describe and delete"
            raise Failure(Exit.MISSING, line, kind=json_code_of(topic.error))
        else:
            if topic.error != ErrorCode.LEADER_NOT_AVAILABLE:  # answered while a topic is being created; the errors of its partitions tell more
                check(topic.error, f"topic {name}")
            existing[name] = topic
    return existing, missing


def selected_topics(cluster: Cluster, options: argparse.Namespace) -> list[str]:
    """The names of the topics that the command line selects. Internal topics are selected only by their whole name."""
    check_selection(options.topics, options.all, "topic")

    def known() -> list[str]:
        return [name for name, topic in cluster.topics(None).items() if not topic.internal or name in options.topics]

    return selected(options.topics, options.all, "topic", known, required=not getattr(options, "if_exists", False))


def await_change(cluster: Cluster, names: Sequence[str], has_change: Callable[[TopicInfo], bool]) -> None:
    """Wait briefly until a broker's metadata has the change that the controller made, so that the next request of the user sees it."""
    deadline = time.monotonic() + min(PROPAGATION_SECONDS, cluster.timeout)
    while names and not all(has_change(topic) for topic in cluster.topics(names, refresh=True).values()) and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)


def required_topics(cluster: Cluster, names: Sequence[str], *, creatable: bool = False) -> dict[str, TopicInfo]:
    existing, missing = existing_topics(cluster, names)
    if missing:
        raise unknown_topics(cluster, missing, creatable=creatable)
    return existing


def unknown_topics(cluster: Cluster, missing: Sequence[str], *, creatable: bool = False, more: str = "") -> Failure:
    """The Failure for unknown topics, with similar names and remedies; `creatable`: suggest `topic create`."""
    try:
        known = [name for name, topic in cluster.topics(None).items() if not topic.internal]
    except Failure:
        known = []
    similar = dict.fromkeys(near for name in missing for near in difflib.get_close_matches(name, known, n=1, cutoff=0.7))
    problem = f"topic {missing[0]} does not exist" if len(missing) == 1 else f"topics {', '.join(missing)} do not exist"
    hint = f"; is it {', '.join(similar)}?" if similar else ""
    remedies = "tenure topic list lists all topics" + (f"; tenure topic create {missing[0]} creates it" if creatable else "") + more
    return Failure(Exit.MISSING, f"{problem}{hint} ({remedies})", kind=UNKNOWN_TOPIC, hint=remedies)
