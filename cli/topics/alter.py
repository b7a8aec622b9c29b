"""`tenure topic alter`: add partitions, change settings. Values that are set already are left out."""

from __future__ import annotations

import argparse
from typing import Any, Final, NamedTuple

from cli.client import EXIT, Cluster, Failure, check
from cli.shown import Screen, plain
from cli.topics.finding import await_known, required
from cli.topics.settings import TOPIC, Setting, meant, topic_settings
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest

SET: Final = 0
DELETE: Final = 1


class Change(NamedTuple):
    what: str
    before: object
    after: object  # None: the cluster does not report the default
    operation: int = SET

    def words(self) -> str:
        after = "its default" if self.after is None else shown(self.after)
        if self.operation == DELETE and self.after is not None:
            after += " (its default here)"
        return f"{self.what}: {shown(self.before)} -> {after}"


def shown(value: object) -> str:
    return "(unknown)" if value is None else plain(str(value)) or "(empty)"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    wished = checked(options)
    with Cluster.of(options) as cluster:
        topic = required(cluster, [options.topic])[options.topic]
        partitions = partition_change(options, len(topic.partitions))
        settings = setting_changes(wished, topic_settings(cluster, [options.topic])[options.topic]) if wished else []
        changes = [*([partitions] if partitions else []), *settings]
        if changes and not options.dry_run:
            confirm(screen, options, partitions, changes)
        # The refusals of both come before either is done.
        if settings:
            send_settings(cluster, options, settings, dry_run=True)
        if partitions:
            send_partitions(cluster, options, dry_run=options.dry_run)
        if settings and not options.dry_run:
            send_settings(cluster, options, settings, dry_run=False)
        if partitions and not options.dry_run:
            await_known(cluster, [options.topic], lambda topic: len(topic.partitions) >= options.partitions)
    if screen.json:
        screen.document({"topic": options.topic, "dry_run": options.dry_run, "changes": [document(change) for change in changes]})
    elif not changes:
        screen.line(f"{options.topic}: everything is as wished already")
    else:
        screen.line(f"{options.topic} {'would be' if options.dry_run else 'was'} changed:")
        for change in changes:
            screen.line(f"  {change.words()}")
        if partitions and options.dry_run:
            screen.line("  " + moved_keys())
    return 0


def checked(options: argparse.Namespace) -> dict[str, str | None]:
    """The requested settings: name -> value, None for the default."""
    wished: dict[str, str | None] = dict(options.settings)
    for name in options.unset:
        if name in wished:
            raise Failure(EXIT.USAGE, f"--set and --unset both name {name}")
        wished[name] = None
    if not wished and not options.partitions:
        raise Failure(EXIT.USAGE, "say what shall change: --partitions N, --set NAME=VALUE or --unset NAME (see tenure topic alter --help)")
    return wished


def partition_change(options: argparse.Namespace, before: int) -> Change | None:
    if not options.partitions or options.partitions == before:
        return None
    if options.partitions < before:
        raise Failure(EXIT.REFUSED, f"topic {options.topic} has {before} partitions; Kafka cannot take any away (a new topic can have fewer)")
    return Change("partitions", before, options.partitions)


def setting_changes(wished: dict[str, str | None], now: dict[str, Setting]) -> list[Change]:
    changes = []
    for name, value in wished.items():
        setting = now.get(name)
        before = None if setting is None or setting.sensitive else setting.value
        if value is None:
            if setting is None:  # Kafka accepts the reset of an unknown setting silently
                raise Failure(EXIT.REFUSED, f"topics have no setting {name}{meant([name])}")
            if setting.own:
                changes.append(Change(name, before, setting.inherited, DELETE))
        elif setting is None or not setting.own or before != value:
            changes.append(Change(name, before, value))
    return changes


def confirm(screen: Screen, options: argparse.Namespace, partitions: Change | None, changes: list[Change]) -> None:
    more = f"  {moved_keys()}\n" if partitions else ""
    listed = "".join(f"  {change.words()}\n" for change in changes)
    if not screen.confirm(f"{options.topic} is to be changed:\n{listed}{more}Go on?", options):
        raise Failure(EXIT.REFUSED, "nothing was changed")


def moved_keys() -> str:
    return "records with a key go to other partitions from then on; those that are there stay where they are"


def send_partitions(cluster: Cluster, options: argparse.Namespace, *, dry_run: bool) -> None:
    wish = CreatePartitionsTopic(options.topic, options.partitions, None)
    reply = cluster.controller(CreatePartitionsRequest([wish], int(options.timeout * 1000), dry_run))
    for result in reply.results:
        check(result.error_code, f"topic {result.name}", result.error_message)


def send_settings(cluster: Cluster, options: argparse.Namespace, changes: list[Change], *, dry_run: bool) -> None:
    wishes = [AlterableConfig(change.what, change.operation, str(change.after) if change.operation == SET else None) for change in changes]
    reply = cluster.controller(IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, options.topic, wishes)], dry_run))
    for result in reply.responses:
        hint = meant(change.what for change in changes) if result.error_code == ErrorCode.INVALID_CONFIG else ""
        check(result.error_code, f"topic {result.resource_name}", f"{result.error_message or ''}{hint}")


def document(change: Change) -> dict[str, Any]:
    return {"what": change.what, "from": change.before, "to": change.after}
