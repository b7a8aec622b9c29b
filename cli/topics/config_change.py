"""`tenure topic config set` and `unset`: change the settings of a topic."""

from __future__ import annotations

import argparse

from cli.client import Cluster, Exit, Failure, check
from cli.shown import Screen, plain
from cli.topics.changes import DELETE, SET, Change, confirm, show_changes
from cli.topics.finding import required_topics
from cli.topics.settings import TOPIC, Setting, similar_names, topic_settings, value_meant
from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    requested = requested_settings(options)
    with Cluster.of(options) as cluster:
        required_topics(cluster, [options.topic])
        changes = setting_changes(requested, topic_settings(cluster, [options.topic])[options.topic])
        if changes:
            send(cluster, options.topic, changes, dry_run=True)  # let the cluster refuse invalid changes before the user is asked
        if changes and not options.dry_run:
            confirm(screen, options, changes)
            send(cluster, options.topic, changes, dry_run=False)
    show_changes(screen, options, changes)
    return Exit.DONE


def requested_settings(options: argparse.Namespace) -> dict[str, str | None]:
    """The requested settings: name -> value; None: back to the default."""
    if options.config_action == "unset":
        return dict.fromkeys(options.names)
    names = [name for name, _ in options.settings]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise Failure(Exit.USAGE, f"{repeated} is set twice")
    return dict(options.settings)


def setting_changes(requested: dict[str, str | None], current: dict[str, Setting]) -> list[Change]:
    changes = []
    for name, value in requested.items():
        setting = current.get(name)
        before = None if setting is None or setting.sensitive else setting.value
        if value is None:
            if setting is None:  # refuse an unknown name here, since Kafka accepts it without an error
                raise Failure(Exit.REFUSED, f"topics have no setting {plain(name)}{similar_names([name])}")
            if setting.is_own:
                changes.append(Change(name, before, setting.inherited, DELETE))
        elif setting is None or not setting.is_own or before != value:
            changes.append(Change(name, before, value))
    return changes


def send(cluster: Cluster, topic: str, changes: list[Change], *, dry_run: bool) -> None:
    configs = [AlterableConfig(change.name, change.operation, str(change.after) if change.operation == SET else None) for change in changes]
    reply = cluster.send_to_controller(IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, topic, configs)], dry_run))
    for result in reply.responses:
        suggestion = ""
        if result.error_code == ErrorCode.INVALID_CONFIG:
            suggestion = similar_names(change.name for change in changes) or value_meant((change.name, str(change.after)) for change in changes if change.operation == SET)
        check(result.error_code, f"topic {result.resource_name}", f"{result.error_message or ''}{suggestion}")
