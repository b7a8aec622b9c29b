"""`tenure store export|import`: run the action, show its result, and turn errors into one line."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from shlex import quote
from typing import Any

from broker.backends.table import JETSTREAM
from broker.logging import logs
from broker.logging.secrets import redacted
from broker.stores.jetstream.store_client import NotEmpty, StoreClient, StoreProblem, TooFewServers
from cli.failure import Exit, Failure
from cli.shown import Screen, counted
from cli.store.directory import DirectorySource
from cli.store.export import Export, Target
from cli.store.importing import Import
from cli.store.logs import Source, logs_of_groups, logs_of_topics, topics_of
from cli.store.progress import Progress, bytes_text
from cli.store.restoring import Restore
from cli.store.streams import StreamSource, config_of
from storage import DamagedLog


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    check_options(options)
    logs.configure("warning", "console")
    try:
        document = asyncio.run(execute(options, screen))
    except BaseExceptionGroup as several:
        raise as_failure(first_of(several), options) from None
    except (DamagedLog, StoreProblem, Failure) as error:
        raise as_failure(error, options) from None
    except KeyboardInterrupt:
        screen.warn("interrupted; repeat the command to continue")
        raise
    finally:
        logs.close()
    document = {"dry_run": options.dry_run, **document}
    if screen.json:
        screen.document(document)
    else:
        show(options, screen, document)
    return Exit.DONE


def first_of(error: BaseException) -> BaseException:
    return first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def as_failure(error: BaseException, options: argparse.Namespace) -> BaseException:
    """Convert an error of a known kind into a Failure with a text for users of `tenure store`; return others unchanged."""
    if isinstance(error, DamagedLog):
        hint = "docs/cluster.md, How do I restore a partition that no node serves?"
        return Failure(Exit.DAMAGED, f"{error.path} is damaged at {error.UNIT} {error.position}: {error.reason}; no damaged record is skipped, so the command ends here", hint=hint)
    if isinstance(error, NotEmpty | TooFewServers):
        return Failure(Exit.REFUSED, str(error))
    if isinstance(error, StoreProblem):
        repeat = "" if options.dry_run else "; repeat the command to continue"
        return Failure(Exit.UNREACHABLE, f"{error}{repeat}", hint="check that nats-server runs")
    return error


def check_options(options: argparse.Namespace) -> None:
    """Raise Failure unless an export goes to a folder, and an import goes from a folder to JetStream.

    An export from a folder may not have --cluster or --set.
    """
    source, target = (redacted(text) if "@" in text else text for text in (options.source, options.target))
    if options.action == "export" and is_store(target):
        raise Failure(Exit.USAGE, f"--to {target}: an export writes a folder; tenure store import copies a folder into JetStream")
    if options.action == "import" and is_store(source):
        raise Failure(Exit.USAGE, f"--from {source}: an import reads a folder; tenure store export writes one")
    if options.action == "import" and not is_store(target):
        raise Failure(
            Exit.USAGE,
            f"--to {target}: an import writes to JetStream (nats://HOST:PORT); a folder needs no import: tenure serve --data {quote(source)}, "
            f"or tenure store export --from {quote(source)} --to {quote(target)} for a copy",
        )
    if options.action == "export" and not is_store(source) and (options.cluster is not None or options.settings):
        raise Failure(Exit.USAGE, f"--from {source}: --cluster and --set are for JetStream, and this is a folder")


def is_store(text: str) -> bool:
    return text.startswith(JETSTREAM.prefixes)


async def execute(options: argparse.Namespace, screen: Screen) -> dict[str, Any]:
    progress = Progress(screen.err)
    if options.action == "import":
        directory = DirectorySource(options.source)
        try:
            config_for = partial(config_of, "--to", options.target, options.cluster, options.settings)
            if not options.only:
                return await Import(directory, config_for, progress, screen.warn).run(options.dry_run)
            return await Restore(directory, config_for, progress, screen.warn, options.only).run(options.dry_run)
        finally:
            directory.close()
    source = await source_of(options)
    try:
        target = Target(options.target, str(source), source.cluster_id)
        if options.dry_run:
            return await dry_run_document(source, target)
        try:
            return await Export(source, target, progress).run()
        finally:
            target.close()
    finally:
        source.close()


async def source_of(options: argparse.Namespace) -> Source:
    if not is_store(options.source):
        return DirectorySource(options.source)
    streams = StreamSource(StoreClient(config_of("--from", options.source, options.cluster, options.settings)))
    try:
        await streams.open()
    except BaseException:
        streams.close()
        raise
    return streams


async def dry_run_document(source: Source, target: Target) -> dict[str, Any]:
    """The totals of the logs that an export would copy."""
    topics = await topics_of(source)
    logs = [log for log in (*logs_of_groups(topics), *logs_of_topics(topics)) if await source.end_of(log) is not None]
    size = sum([await source.size_of(log) for log in logs])
    ids = {"source": str(source), "target": target.path_given, "cluster_id": source.cluster_id}
    return {**ids, "continued": target.continues, "logs": len(logs) + 1, "bytes": size}


def show(options: argparse.Namespace, screen: Screen, document: dict[str, Any]) -> None:
    totals = f"{counted(document['logs'], 'log')}, {bytes_text(document['bytes'])}"
    copy = f"cluster {document['cluster_id']} from {document['source']} to {document['target']}"
    if options.dry_run:
        screen.line(f"would {options.action} {copy}: {totals}")
        return
    screen.line(f"{options.action}ed {copy}: {totals}")
    if options.action == "export":
        screen.line(f"serve it with one broker: tenure serve --data {quote(options.target)}")
        screen.line(f"put it into JetStream:    tenure store import --from {quote(options.target)} --to nats://HOST:PORT --cluster NAME")
    else:
        more = "".join(f" --set {quote(setting)}" for setting in options.settings)
        screen.line(f"start its nodes: tenure serve --store {quote(document['store'])} --cluster {quote(options.cluster or 'tenure')} --node-id 1{more}")
