"""Open the folder of the tables for a command; every problem becomes a Failure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli.failure import EXIT, UNKNOWN_GROUP, Failure

if TYPE_CHECKING:
    from pipeline.warehouse import Warehouse

R = TypeVar("R", bound=tuple[object, ...])

FINDINGS = 2
EXTRA = "pip install 'tenure[analyze]', or in a checkout: make setup-analyze"


@contextmanager
def open_warehouse(options: argparse.Namespace, *, create: bool = False) -> Iterator[Warehouse]:
    """The warehouse in --out. Errors with a message for users become a Failure."""
    missing = [name for name in ("pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise Failure(EXIT.UNSUPPORTED, f"analyses need {missing[0]}: {EXTRA}", word="missing-extra", hint=EXTRA)
    from pipeline.session import NoSpark
    from pipeline.warehouse import Warehouse, WarehouseBusy, WarehouseError

    try:
        yield Warehouse.open(Path(options.out), create=create)
    except WarehouseBusy as error:
        raise Failure(EXIT.AGAIN, str(error), word="busy", hint="wait for it to end") from None
    except WarehouseError as error:
        raise Failure(EXIT.DAMAGED, str(error)) from None
    except NoSpark as error:
        raise Failure(EXIT.UNSUPPORTED, str(error), word="no-spark") from None


def rows(warehouse: Warehouse, name: str, row: type[R], group: str | None = None) -> list[R]:
    """The rows of a table, or only those of one group."""
    from pipeline.schema import rows_of

    return rows_of(row, warehouse.read(name, only=None if group is None else {"group": group}))


def check_group(warehouse: Warehouse, group: str) -> None:
    known = warehouse.read("groups", columns=["group"])["group"].to_pylist()
    if group not in known:
        from cli.command_line import closest

        raise Failure(EXIT.MISSING, f"no group {group!r} in {warehouse.folder}{closest(group, known)}", word=UNKNOWN_GROUP)
