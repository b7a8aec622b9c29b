"""Topics by the names on the command line."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from cli.client import EXIT, Failure, check
from cli.client.words import word_of
from cli.failure import UNKNOWN_TOPIC
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

KNOWN_SECONDS: Final = 0.2
SPREAD_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.02


def existing(cluster: Cluster, names: Sequence[str]) -> tuple[dict[str, TopicInfo], list[str]]:
    """The existing topics, in the given order, and the names of missing ones. Failure: the cluster refuses one."""
    names = list(dict.fromkeys(names))
    found = cluster.topics(names)
    if any(topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in found.values()):
        time.sleep(KNOWN_SECONDS)  # created a moment ago, perhaps through another broker
        found = cluster.topics(names)
    there: dict[str, TopicInfo] = {}
    missing: list[str] = []
    for name in names:
        topic = found.get(name)
        if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(name)
        elif topic.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
            line = f"topic {name!r} cannot exist: names have 1 to 249 letters, digits, dots, dashes and underscores"
            raise Failure(EXIT.MISSING, line, word=word_of(topic.error))
        else:
            if topic.error != ErrorCode.LEADER_NOT_AVAILABLE:  # reported while a topic is being created; its partitions say more
                check(topic.error, f"topic {name}")
            there[name] = topic
    return there, missing


def await_known(cluster: Cluster, names: Sequence[str], known: Callable[[TopicInfo], bool]) -> None:
    """Wait a limited time until the brokers know the controller's change, so that the next request sees it."""
    until = time.monotonic() + min(SPREAD_SECONDS, cluster.timeout)
    while names and not all(known(topic) for topic in cluster.topics(names, refresh=True).values()) and time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)


def required(cluster: Cluster, names: Sequence[str], *, makes: bool = False) -> dict[str, TopicInfo]:
    there, missing = existing(cluster, names)
    if missing:
        raise absent(cluster, missing, makes=makes)
    return there


def absent(cluster: Cluster, missing: Sequence[str], *, makes: bool = False, more: str = "") -> Failure:
    """The remedy for unknown topic names: similar names; `makes`: creating them; `more`: other remedies."""
    try:
        known = [name for name, topic in cluster.topics(None).items() if not topic.internal]
    except Failure:
        known = []
    meant = dict.fromkeys(near for name in missing for near in difflib.get_close_matches(name, known, n=1, cutoff=0.7))
    which = f"topic {missing[0]} does not exist" if len(missing) == 1 else f"topics {', '.join(missing)} do not exist"
    hint = f"; is it {', '.join(meant)}?" if meant else ""
    what = "tenure topic list shows what there is" + (f"; tenure topic create {missing[0]} makes it" if makes else "") + more
    return Failure(EXIT.MISSING, f"{which}{hint} ({what})", word=UNKNOWN_TOPIC, hint=what)
