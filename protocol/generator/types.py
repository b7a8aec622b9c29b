"""Python types of fields, their defaults, and their minimum sizes on the wire."""

from __future__ import annotations

from protocol.generator.model import FIXED_SIZES, Field, Struct, Versions

SCALARS = {"bool": "bool", "string": "str", "bytes": "bytes", "uuid": "bytes"}


def python_type(item: Field) -> str:
    if item.kind == "array":
        whole = f"list[{item.struct.name if item.struct else scalar(item.element)}]"
    elif item.struct is not None:
        whole = item.struct.name
    else:
        whole = scalar(item.kind)
    return f"{whole} | None" if may_be_none(item) else whole


def may_be_none(item: Field) -> bool:
    """Whether the field may be None: also a tagged struct, since it may be absent; None then means Kafka's default value."""
    return item.nullable is not None or (item.kind == "struct" and item.tag is not None)


def created_by_default(item: Field) -> bool:
    """Whether the constructor creates an empty value: for lists and structs that cannot be null."""
    return item.kind in ("array", "struct") and not may_be_none(item)


def scalar(kind: str) -> str:
    return SCALARS.get(kind, "int")


def default_value(item: Field) -> str:
    """Kafka's default, which a version without the field decodes to."""
    if item.default == ():
        return "[]"
    if item.kind == "uuid":
        assert item.default == bytes(16), f"{item.name}: a uuid defaults to zeros"
        return "ZERO_UUID"
    return '""' if item.default == "" else repr(item.default)


def size_min(struct: Struct, versions: Versions, flexible: bool) -> int:
    """The minimum size of an array element."""
    size = 1 if flexible else 0
    for item in struct.fields:
        if item.tag is None and item.versions[0] <= versions[0] and item.versions[1] >= versions[1]:
            size += kind_size(item.kind, flexible)
    assert size > 0, f"{struct.name}: elements without bytes cannot be counted"
    return size


def kind_size(kind: str, flexible: bool) -> int:
    if kind in FIXED_SIZES:
        return FIXED_SIZES[kind]
    if kind == "struct":
        return 1  # the null marker of a nullable struct, or a struct's own tags
    return 1 if flexible else {"string": 2, "bytes": 4, "array": 4}[kind]
