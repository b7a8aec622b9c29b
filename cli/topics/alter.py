"""`tenure topic alter`: adds partitions and changes settings."""

from __future__ import annotations

import argparse
from typing import Any, Final, NamedTuple

from cli.client import Cluster, Exit, Failure, check
from cli.shown import Screen, plain
from cli.topics.finding import await_change, required_topics
from cli.topics.settings import TOPIC, Setting, similar_names, topic_settings
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest

SET: Final = 0
DELETE: Final = 1


class Change(NamedTuple):
    name: str
    before: object
    after: object  # None: the default, which is unknown
    operation: int = SET

    def text(self) -> str:
        after = "its default" if self.after is None else shown(self.after)
        if self.operation == DELETE and self.after is not None:
            after += " (its default here)"
        return f"{self.name}: {shown(self.before)} -> {after}"


def shown(value: object) -> str:
    return "(unknown)" if value is None else plain(str(value)) or "(empty)"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    requested = requested_settings(options)
    with Cluster.of(options) as cluster:
        topic = required_topics(cluster, [options.topic])[options.topic]
        partitions = partition_change(options, len(topic.partitions))
        settings = setting_changes(requested, topic_settings(cluster, [options.topic])[options.topic]) if requested else []
        changes = [*([partitions] if partitions else []), *settings]
        if changes and not options.dry_run:
            confirm(screen, options, partitions, changes)
        # Let the cluster validate both kinds of changes before it makes either.
        if settings:
            send_settings(cluster, options, settings, dry_run=True)
        if partitions:
            send_partitions(cluster, options, dry_run=options.dry_run)
        if settings and not options.dry_run:
            send_settings(cluster, options, settings, dry_run=False)
        if partitions and not options.dry_run:
            await_change(cluster, [options.topic], lambda topic: len(topic.partitions) >= options.partitions)
    if screen.json:
        screen.document({"topic": options.topic, "dry_run": options.dry_run, "changes": [document(change) for change in changes]})
    elif not changes:
        screen.line(f"{options.topic} has these values already")
    else:
        screen.line(f"{options.topic} {'would be' if options.dry_run else 'was'} changed:")
        for change in changes:
            screen.line(f"  {change.text()}")
        if partitions and options.dry_run:
            screen.line("  " + keys_warning())
    return 0


def requested_settings(options: argparse.Namespace) -> dict[str, str | None]:
    """The requested settings: name -> value; None: back to the default."""
    requested: dict[str, str | None] = dict(options.settings)
    for name in options.unset:
        if name in requested:
            raise Failure(Exit.USAGE, f"--set and --unset both name {name}")
        requested[name] = None
    if not requested and not options.partitions:
        raise Failure(Exit.USAGE, "name a change: --partitions N, --set NAME=VALUE or --unset NAME (see tenure topic alter --help)")
    return requested


def partition_change(options: argparse.Namespace, before: int) -> Change | None:
    if not options.partitions or options.partitions == before:
        return None
    if options.partitions < before:
        raise Failure(Exit.REFUSED, f"topic {options.topic} has {before} partitions; their number cannot be reduced (a new topic can have fewer)")
    return Change("partitions", before, options.partitions)


def setting_changes(requested: dict[str, str | None], current: dict[str, Setting]) -> list[Change]:
    changes = []
    for name, value in requested.items():
        setting = current.get(name)
        before = None if setting is None or setting.sensitive else setting.value
        if value is None:
            if setting is None:  # refuse an unknown name here, since Kafka accepts it without an error
                raise Failure(Exit.REFUSED, f"topics have no setting {name}{similar_names([name])}")
            if setting.is_own:
                changes.append(Change(name, before, setting.inherited, DELETE))
        elif setting is None or not setting.is_own or before != value:
            changes.append(Change(name, before, value))
    return changes


def confirm(screen: Screen, options: argparse.Namespace, partitions: Change | None, changes: list[Change]) -> None:
    warning = f"  {keys_warning()}\n" if partitions else ""
    change_lines = "".join(f"  {change.text()}\n" for change in changes)
    if not screen.confirm(f"{options.topic} will be changed:\n{change_lines}{warning}Continue?", options):
        raise Failure(Exit.REFUSED, "nothing was changed")


def keys_warning() -> str:
    return "new records with a key may go to other partitions; existing records stay"


def send_partitions(cluster: Cluster, options: argparse.Namespace, *, dry_run: bool) -> None:
    topic = CreatePartitionsTopic(options.topic, options.partitions, None)
    reply = cluster.send_to_controller(CreatePartitionsRequest([topic], int(cluster.timeout * 1000), dry_run))
    for result in reply.results:
        check(result.error_code, f"topic {result.name}", result.error_message)


def send_settings(cluster: Cluster, options: argparse.Namespace, changes: list[Change], *, dry_run: bool) -> None:
    configs = [AlterableConfig(change.name, change.operation, str(change.after) if change.operation == SET else None) for change in changes]
    reply = cluster.send_to_controller(IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, options.topic, configs)], dry_run))
    for result in reply.responses:
        suggestion = similar_names(change.name for change in changes) if result.error_code == ErrorCode.INVALID_CONFIG else ""
        check(result.error_code, f"topic {result.resource_name}", f"{result.error_message or ''}{suggestion}")


def document(change: Change) -> dict[str, Any]:
    return {"what": change.name, "from": change.before, "to": change.after}
