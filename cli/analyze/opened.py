"""Opens the tables of an analysis; every problem becomes a Failure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli.failure import UNKNOWN_GROUP, Exit, Failure

if TYPE_CHECKING:
    from pipeline.tables import Tables

R = TypeVar("R", bound=tuple[object, ...])

FINDINGS = 2
NEEDED = ("pyarrow", "numpy", "deltalake", "jinja2")  # by the extra `analyze`
INSTALL_HINT = "pip install 'tenure[analyze]' adds it, in a checkout `make setup`"


@contextmanager
def open_tables(options: argparse.Namespace, *, create: bool = False) -> Iterator[Tables]:
    """The tables in --out. Errors with a message for users become a Failure."""
    from pipeline.out_folder import TablesError, check_folder

    if "://" not in options.out:
        try:
            check_folder(Path(options.out), create)
        except TablesError as error:
            raise Failure(Exit.DAMAGED, str(error)) from None
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise Failure(Exit.UNSUPPORTED, f"analyses need {missing[0]}, which is not installed: {INSTALL_HINT}", kind="missing-extra", hint=INSTALL_HINT)
    from pipeline.session import NoSpark
    from pipeline.tables import Tables, TablesBusy

    try:
        tables = Tables.open(options.out, create=create, options=dict(options.storage_option))
        try:
            yield tables
        except BaseException:
            tables.discard()  # a failed first run leaves nothing
            raise
    except TablesBusy as error:
        raise Failure(Exit.AGAIN, str(error), kind="busy", hint="wait for it to end") from None
    except TablesError as error:
        raise Failure(Exit.DAMAGED, str(error)) from None
    except NoSpark as error:
        raise Failure(Exit.UNSUPPORTED, str(error), kind="no-spark") from None


def rows(tables: Tables, name: str, row: type[R], **only: str | bool | None) -> list[R]:
    """The rows of a table with these values; None is any value."""
    from pipeline.schema import rows_of

    return rows_of(row, tables.read(name, only={column: value for column, value in only.items() if value is not None}))


def known_names(tables: Tables, cluster: str | None) -> tuple[set[str], set[str]]:
    """The clusters of the tables, and the groups of `cluster`, or of all if it is None. Raise Failure if the tables have no such cluster."""
    known = tables.read("groups", columns=["cluster", "group"]).to_pylist()
    clusters = {*tables.published().now_ms, *(row["cluster"] for row in known)}
    if cluster is not None and cluster not in clusters:
        has = f"; it has {', '.join(sorted(clusters))}" if clusters else ""
        raise Failure(Exit.MISSING, f"no cluster {cluster!r} in {tables.folder}{has}", kind="unknown-cluster")
    return clusters, {row["group"] for row in known if cluster in (None, row["cluster"])}


def check_names(tables: Tables, options: argparse.Namespace) -> set[str]:
    """Raise Failure if the tables lack the cluster or group of the command. Return the clusters of the tables."""
    from cli.command_line import closest

    clusters, groups = known_names(tables, options.cluster)
    if options.group is not None and options.group not in groups:
        raise Failure(Exit.MISSING, f"no group {options.group!r} in {place(tables, options.cluster)}{closest(options.group, groups)}", kind=UNKNOWN_GROUP)
    return clusters


def place(tables: Tables, cluster: str | None) -> str:
    """Where a name was looked up, for an error message."""
    return str(tables.folder) if cluster is None else f"cluster {cluster} of {tables.folder}"
