"""Generates the code that encodes messages.

Replies also get `encode_in_steps`, a generator for long ones: it yields before each array element, with the approximate cost in elements, so that
other requests can be answered in between, and its caller can take what `out` has. Both functions come from the same code here.
"""

from __future__ import annotations

from contextlib import nullcontext

from protocol.generator.lines import Lines, condition
from protocol.generator.model import FIXED_LETTERS, FIXED_SIZES, Field, Message, Struct
from protocol.generator.paths import Path, by_path, paths_of, runs, sections
from protocol.generator.types import default_value


def encode_method(out: Lines, message: Message) -> None:
    struct, paths = message.struct, paths_of(message.versions, message.flexible_from)
    out.put("")
    with out.block("def encode(self, version: int) -> bytes:"):
        out.put("out: list[bytes] = []")
        with out.block("try:"):
            by_path(out, paths, struct, lambda o, path: write_fields(o, struct, path, "self"))
        raise_unwritable(out, struct)
        out.put('return b"".join(out)')


def encode_in_steps_method(out: Lines, message: Message) -> None:
    struct, paths = message.struct, paths_of(message.versions, message.flexible_from)
    out.put("")
    with out.block(f"def encode_in_steps(self, out: list[bytes], version: int) -> {out.use('Steps')}[None]:"):
        out.put("yield 1")
        with out.block("try:"):
            by_path(out, paths, struct, lambda o, path: write_fields(o, struct, path, "self", True))
        raise_unwritable(out, struct)


def raise_unwritable(out: Lines, struct: Struct) -> None:
    with out.block(f"except {out.use('UNWRITABLE')} as error:"):
        out.put(f'raise {out.use("unwritable")}("{struct.name}", version, error) from error')


def write_method(out: Lines, struct: Struct, paths: list[Path]) -> None:
    out.put("")
    with out.block("def write(self, out: list[bytes], version: int) -> None:"):
        by_path(out, paths, struct, lambda o, path: write_fields(o, struct, path, "self"))


def write_array_method(out: Lines, struct: Struct, paths: list[Path], nullable: bool, in_steps: bool = False) -> None:
    out.put("", "@staticmethod")
    items = f"list[{struct.name}] | None" if nullable else f"list[{struct.name}]"
    name, result = ("write_array_in_steps", f"{out.use('Steps')}[None]") if in_steps else ("write_array", "None")
    with out.block(f"def {name}(out: list[bytes], items: {items}, version: int) -> {result}:"):

        def elements(o: Lines, path: Path) -> None:
            put_count = o.use("put_compact_count" if path.flexible else "put_legacy_count")
            if nullable:
                with o.block("if items is None:"):
                    o.put(f"{put_count}(out, -1)", "return")
            o.put(f"{put_count}(out, len(items))")
            body = Lines(o.level + 1)
            if in_steps:
                body.put("yield 1")
            write_fields(body, struct, path, "item", in_steps)
            o.used |= body.used
            only = body.lines[0].strip()
            if len(body.lines) == 1 and only.startswith("out.append("):
                o.put(f"out += [{only.removeprefix('out.append(').removesuffix(')')} for item in items]")
            else:
                o.put("for item in items:")
                o.lines += body.lines

        by_path(out, paths, struct, elements)


def write_fields(out: Lines, struct: Struct, path: Path, owner: str, in_steps: bool = False) -> None:
    tagged = [item for item in struct.fields if item.tag is not None and path.has(item)]
    ended = False  # whether the last run also writes the number of tagged fields, 0
    for when, fields in sections(struct, path):
        last = not tagged and path.flexible and fields[-1] is [item for item in struct.fields if path.has(item)][-1]
        if when is None:
            ended = write_section(out, fields, path, owner, last, in_steps)
        else:
            with out.block(f"if {when}:"):
                write_section(out, fields, path, owner, False, in_steps)
    if path.flexible:
        if not ended:
            write_tags(out, tagged, path, owner)
    elif not any(item.tag is None and path.has(item) for item in struct.fields):
        out.put("pass")


def write_section(out: Lines, fields: list[Field], path: Path, owner: str, last: bool, in_steps: bool) -> bool:
    """Write the code that encodes these fields. Return whether the code of the last run also writes the number of tagged fields, 0."""
    ended = False
    for run in runs(fields, single=("uuid",)):
        if run[0].kind in FIXED_SIZES:
            ended = last and run[-1] is fields[-1] and run[0].kind != "uuid"
            write_run(out, run, owner, "out", ended)
        else:
            ended = False
            write_one(out, run[0], path, f"{owner}.{run[0].name}", "out", inline=True, in_steps=in_steps)
    return ended


def write_run(out: Lines, run: list[Field], owner: str, target: str, no_tags: bool = False) -> None:
    values = [f"{owner}.{item.name}" for item in run] + ["0"] * no_tags
    letters = "".join(FIXED_LETTERS[item.kind] for item in run) + "b" * no_tags
    if run[0].kind == "uuid":
        out.put(f"{out.use('put_uuid')}({target}, {values[0]})")
    elif letters == "t":
        out.put(f'{target}.append(b"\\x01" if {values[0]} else b"\\x00")')
    else:
        out.call(f"{target}.append(", out.use("pack_" + letters), values, ")")


def write_one(out: Lines, item: Field, path: Path, value: str, target: str, inline: bool, in_steps: bool = False) -> None:
    encoding = "compact" if path.flexible else "legacy"
    when = path.null_when(item)
    null = when is not None
    if item.kind == "array":
        write_plain_array(out, item, path, value, target, in_steps)
    elif item.kind == "struct":
        if not null:
            out.put(f"{value}.write({target}, version)")
            return
        with out.block(f"if {value} is None:"):
            out.put(f'{target}.append(b"\\xff")')
        with out.block("else:"):
            out.put(f'{target}.append(b"\\x01")', f"{value}.write({target}, version)")
    elif not (path.flexible and inline):
        word = "text" if item.kind == "string" else "blob"
        out.put(f"{out.use(f'put_{encoding}_{word}' + ('_or_null' if null else ''))}({target}, {encodable_value(item, path, value)})")
    elif item.nullable is not None:
        with out.block(f"if {value} is None:"):
            absent = f'b"\\x00" if {when} else b"\\x01"' if when else 'b"\\x00"' if null else 'b"\\x01"'
            out.put(f"{target}.append({absent})")
        with out.block("else:"):
            write_compact(out, item, value, target)
    else:
        write_compact(out, item, value, target)


def encodable_value(item: Field, path: Path, value: str) -> str:
    """The value to encode: in versions without null, an empty value instead of None."""
    if item.nullable is None:
        return value
    empty = {"string": '""', "bytes": 'b""', "array": "[]"}[item.kind]
    when = path.null_when(item)
    if when is None:
        return f"{value} or {empty}"
    return f"{value} if {when} else {value} or {empty}" if when else value


def write_compact(out: Lines, item: Field, value: str, target: str) -> None:
    if item.kind == "string":
        out.put(f"text = {value}.encode()")
        value = "text"
    out.put(f"n = len({value}) + 1")
    encode_length = out.use("text_length" if item.kind == "string" else "uvarint_bytes")
    out.put(f"{target}.append({out.use('BYTES')}[n] if n < 128 else {encode_length}(n))")
    out.put(f"{target}.append({value})")


def write_plain_array(out: Lines, item: Field, path: Path, value: str, target: str, in_steps: bool) -> None:
    if item.struct is not None:
        call = f"yield from {item.struct.name}.write_array_in_steps" if in_steps else f"{item.struct.name}.write_array"
        out.put(f"{call}({target}, {encodable_value(item, path, value)}, version)")
        return
    put_count = out.use("put_compact_count" if path.flexible else "put_legacy_count")
    put_values = out.use(f"put_{item.element}s" if item.element in ("int8", "int32") else f"put_{'compact' if path.flexible else 'legacy'}_texts")
    if item.nullable is None or item.tag is not None:  # a tagged null is left out
        out.put(f"{put_count}({target}, len({value}))", f"{put_values}({target}, {value})")
        return
    with out.block(f"if {value} is None:"):
        assert path.null_when(item) == "", f"{item.name}: null in some versions only"
        out.put(f"{put_count}({target}, -1)")
    with out.block("else:"):
        out.put(f"{put_count}({target}, len({value}))", f"{put_values}({target}, {value})")


def write_tags(out: Lines, tagged: list[Field], path: Path, owner: str) -> None:
    known = sorted((item for item in tagged if path.has(item)), key=lambda item: item.tag or 0)
    if not known:
        out.put('out.append(b"\\x00")')
        return
    out.put("tags = 0", "tagged: list[bytes] = []", "part: list[bytes]")
    for item in known:
        when, value = condition(item.versions, path.versions), f"{owner}.{item.name}"
        differs = is_not_default(out, item, value)
        with out.block(f"if {' and '.join(filter(None, (when, differs)))}:") if when or differs else nullcontext():
            out.put("tags += 1", "part = []")
            if item.kind in FIXED_SIZES:
                write_run(out, [item], owner, "part")
            elif item.kind == "struct":
                if path.null_when(item) is not None:
                    with out.block(f"if {value} is None:"):
                        out.put('part.append(b"\\x00")')
                    with out.block("else:"):
                        out.put('part.append(b"\\x01")', f"{value}.write(part, version)")
                else:
                    out.put(f"{value}.write(part, version)")
            else:
                write_one(out, item, path, value, "part", inline=False)
            out.put(f"{out.use('put_tag')}(tagged, {item.tag}, part)")
    out.put(f"out.append({out.use('BYTES')}[tags])", "out += tagged")


def is_not_default(out: Lines, item: Field, value: str) -> str:
    """The condition for sending a tagged field: its value is not the default. Empty: it is always sent."""
    if item.kind == "struct":
        assert item.struct is not None
        if item.nullable is not None:
            return ""  # Kafka's default is an empty struct, so that null is sent
        return f"{value} is not None and {value} != {item.struct.name}()"
    if item.kind == "bool":
        return value if item.default is False else f"not {value}"
    if item.kind == "array":
        return value  # Kafka leaves out an empty list, also where the list may be null
    if item.default is None:
        return f"{value} is not None"
    default = default_value(item)
    return f"{value} != {out.use(default) if default == 'ZERO_UUID' else default}"
