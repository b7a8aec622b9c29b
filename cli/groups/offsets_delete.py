"""`tenure group offsets delete`: delete committed offsets of topics without subscribers."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping

from cli.client import EXIT, Cluster, Failure, failure
from cli.groups import offsets_asking, offsets_change
from cli.groups.finding import absent
from cli.groups.offsets_plan import Committed, Key
from cli.groups.offsets_reset import blame, shares, within
from cli.groups.offsets_words import Scope, together
from cli.shown import Column, Screen
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import OffsetDeleteRequest


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    group = options.group
    named = together(options.topics)
    with Cluster.of(options) as cluster:
        if cluster.version(OffsetDeleteRequest.API_KEY) < 0:
            raise Failure(EXIT.LACKING, "the cluster cannot delete offsets (OffsetDelete, Kafka 2.4); `tenure group delete` deletes all of a group")
        committed = offsets_asking.committed(cluster, [group])[group]
        if not committed:
            standing = offsets_asking.standing(cluster, group)
            if not standing.exists:
                raise absent(cluster, group)
            if standing.shares:
                raise Failure(EXIT.REFUSED, shares(group))
        chosen = {key: committed[key] for key in sorted(committed) if within(key, named)}
        lacking = [f"group {group} has committed nothing for {scope}" for scope in not_committed(named, committed)]
        if not chosen:
            if screen.json:
                screen.document(document(group, chosen, dry_run=options.dry_run, errors={}))
            return max(screen.fail(Failure(EXIT.MISSING, line, word="no-offsets")) for line in lacking)
        for line in lacking:
            screen.warn(line)
        if not screen.json:
            screen.table(
                [Column("TOPIC", False), "PARTITION", "COMMITTED"], [(topic, partition, one.offset) for (topic, partition), one in chosen.items()]
            )
        if options.dry_run:
            return finish_dry_run(screen, group, chosen, offsets_asking.standing(cluster, group).topics)
        if not screen.confirm(f"Delete {counted(chosen)} of group {group}?", options):
            raise Failure(EXIT.REFUSED, "nothing was changed")
        errors = offsets_change.delete(cluster, group, chosen)
    return finish(screen, group, chosen, errors)


def not_committed(named: Mapping[str, Collection[int] | None], committed: Mapping[Key, Committed]) -> list[Scope]:
    topics = {topic for topic, _ in committed}
    lacking: list[Scope] = []
    for topic, partitions in named.items():
        if partitions is None:
            lacking += [Scope(topic, None)] * (topic not in topics)
        elif left := [partition for partition in sorted(partitions) if (topic, partition) not in committed]:
            lacking.append(Scope(topic, tuple(left)))
    return lacking


def counted(chosen: Collection[Key]) -> str:
    return "the offset of 1 partition" if len(chosen) == 1 else f"the offsets of {len(chosen)} partitions"


def document(group: str, chosen: Mapping[Key, Committed], *, dry_run: bool, errors: Mapping[Key, int]) -> dict[str, object]:
    rows = [
        {"topic": key[0], "partition": key[1], "committed_offset": one.offset, "error": refusal(group, errors[key]).document() if key in errors else None}
        for key, one in chosen.items()
    ]
    return {"group": group, "dry_run": dry_run, "offsets": rows}


def finish_dry_run(screen: Screen, group: str, chosen: Mapping[Key, Committed], subscribed: Collection[str]) -> int:
    errors = {key: int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for key in chosen if key[0] in subscribed}
    if screen.json:
        screen.document(document(group, chosen, dry_run=True, errors=errors))
    else:
        would = f"{counted(chosen.keys() - errors.keys())} would be deleted" if len(errors) < len(chosen) else "nothing would be deleted"
        screen.line(f"dry run: nothing was changed, {would}")
    return EXIT.DONE if not errors else blame(screen, errors, lambda error: refusal(group, error), "would not be deleted")


def finish(screen: Screen, group: str, chosen: Mapping[Key, Committed], errors: Mapping[Key, int]) -> int:
    if screen.json:
        screen.document(document(group, chosen, dry_run=False, errors=errors))
    done = [key for key in chosen if key not in errors]
    if not screen.json and done:
        screen.line(f"deleted {counted(done)} of group {group}")
    return EXIT.DONE if not errors else blame(screen, errors, lambda error: refusal(group, error), "not deleted")


def refusal(group: str, error: int) -> Failure:
    if error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return failure(error, "").saying(f"members of group {group} are subscribed to the topic: stop them first, or remove them (tenure group remove-member)")
    return failure(error, f"group {group}")
