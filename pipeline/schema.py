"""Arrow schemas of the tables, from the classes of `rows.py`, and conversions between rows and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.rows import TABLES

R = TypeVar("R", bound=tuple[object, ...])

SIMPLE = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), bytes: pa.binary()}


@cache
def schema_of(name: str) -> pa.Schema:
    hints = get_type_hints(TABLES[name].row)
    return pa.schema([_field(column, hint) for column, hint in hints.items()])


def _field(name: str, hint: Any) -> pa.Field:
    if get_origin(hint) is list:
        return pa.field(name, pa.list_(SIMPLE[get_args(hint)[0]]), nullable=False)
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] if get_origin(hint) is not None else [hint]
    assert len(kinds) == 1, f"{name}: {hint}"
    return pa.field(name, SIMPLE[kinds[0]], nullable=type(None) in get_args(hint))


def table_of(name: str, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    """The rows as a table, in the same order."""
    schema = schema_of(name)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays([pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)], schema=schema)


def rows_of(row: type[R], table: pa.Table) -> list[R]:
    columns = [table.column(name).to_pylist() for name in cast(Any, row)._fields]
    return [cast(Any, row)(*values) for values in zip(*columns, strict=True)]


def in_order(name: str, table: pa.Table) -> pa.Table:
    """The table sorted by its key, nulls last, with the types of its schema, and its columns as far as it has them: at least the key."""
    schema = pa.schema([field for field in schema_of(name) if field.name in table.column_names])
    table = table.select(schema.names).cast(schema).combine_chunks()
    key = TABLES[name].key
    return table if _is_sorted(table, key) else table.sort_by([(column, "ascending") for column in key]).combine_chunks()


def _is_sorted(table: pa.Table, key: Sequence[str]) -> bool:
    """Whether the table is sorted, as most are: this check is much cheaper than sorting. False also if the key has nulls."""
    if len(table) < 2:
        return True
    tied: Any = True
    for name in key:
        column = table[name].combine_chunks()
        if column.null_count:
            return False
        before, after = column[:-1], column[1:]
        falls = pc.and_(pc.greater(before, after), tied)
        if pc.any(falls).as_py():
            return False
        tied = pc.and_(pc.equal(before, after), tied)
    return True


def schema_with_dictionaries(name: str, table: pa.Table) -> pa.Schema:
    """The schema, but with the types of dictionary columns in `table`."""
    fields = [field.with_type(table[field.name].type) if pa.types.is_dictionary(table[field.name].type) else field for field in schema_of(name)]
    return pa.schema(fields)


def joined(name: str, tables: Iterable[pa.Table]) -> pa.Table:
    """These tables as one; names that are dictionaries become texts."""
    schema = schema_of(name)
    return pa.concat_tables([schema.empty_table(), *(table if table.schema.types == schema.types else table.cast(schema) for table in tables)])
