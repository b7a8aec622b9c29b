"""Generates the code that decodes messages."""

from __future__ import annotations

from protocol.generator.lines import Lines, condition
from protocol.generator.model import FIXED_LETTERS, FIXED_SIZES, Field, Message, Struct
from protocol.generator.paths import Path, by_path, paths_of, runs, sections
from protocol.generator.types import default_value, kind_size, may_be_none, python_type, size_min

# Variable names of generated code. A loop's bound is a separate variable: mypyc evaluates `range(n)` again when n changes.
RESERVED = {"at", "data", "error", "item", "items", "n", "out", "stop", "tag", "tags", "total", "version"}


def decode_method(out: Lines, message: Message) -> None:
    struct, paths = message.struct, paths_of(message.versions, message.flexible_from)
    assert not RESERVED & {item.name for item in struct.fields}
    name = struct.name
    out.put("", "@staticmethod")
    with out.block(f"def decode(data: bytes, at: int, version: int) -> tuple[{name}, int]:"):
        write_declarations(out, struct, paths)
        with out.block("try:"):
            by_path(out, paths, struct, lambda o, path: read_fields(o, struct, path))
        with out.block(f"except {out.use('UNREADABLE')} as error:"):
            out.put(f'raise {out.use("cut_short")}("{name}", version) from error')
        with out.block("if at > len(data):"):
            out.put(f'raise cut_short("{name}", version)')
        out.call("return ", name, (item.name for item in struct.arguments), ", at")


def read_method(out: Lines, struct: Struct, paths: list[Path]) -> None:
    """Generate `read` for a struct that occurs outside of arrays. Its caller has read the null byte or the tag, if there is one."""
    assert not RESERVED & {item.name for item in struct.fields}
    out.put("", "@staticmethod")
    with out.block(f"def read(data: bytes, at: int, version: int) -> tuple[{struct.name}, int]:"):
        write_declarations(out, struct, paths)
        by_path(out, paths, struct, lambda o, path: read_fields(o, struct, path))
        out.call("return ", struct.name, (item.name for item in struct.arguments), ", at")


def read_array_method(out: Lines, struct: Struct, paths: list[Path], nullable: bool) -> None:
    assert not RESERVED & {item.name for item in struct.fields}
    name = struct.name
    out.put("", "@staticmethod")
    result = f"list[{name}] | None" if nullable else f"list[{name}]"
    with out.block(f"def read_array(data: bytes, at: int, version: int) -> tuple[{result}, int]:"):
        for item in struct.fields:
            if any(not path.always(item) for path in paths):
                reset = item.tag is not None or item.default == ()  # the loop sets it for each element
                out.put(f"{item.name}: {python_type(item)}" + ("" if reset else f" = {used_default(out, item)}"))
            elif may_be_none(item):
                out.put(f"{item.name}: {python_type(item)}")
        out.put(f"items: list[{name}] = []")

        def elements(o: Lines, path: Path) -> None:
            counter = o.use(("compact_count" if path.flexible else "legacy_count") + ("_or_null" if nullable else ""))
            o.put(f"total, at = {counter}(data, at, {size_min(struct, path.versions, path.flexible)})")
            if nullable:
                with o.block("if total < 0:"):
                    o.put("return None, at")
            with o.block("for _ in range(total):"):
                for item in struct.fields:
                    if not path.always(item) and (item.tag is not None or item.default == ()):
                        o.put(f"{item.name} = {used_default(o, item)}")
                read_fields(o, struct, path)
                o.call("items.append(", name, (item.name for item in struct.arguments), ")")

        by_path(out, paths, struct, elements)
        out.put("return items, at")


def write_declarations(out: Lines, struct: Struct, paths: list[Path]) -> None:
    for item in struct.fields:
        if any(not path.always(item) for path in paths):
            typed = f": {python_type(item)}" if may_be_none(item) or item.kind == "array" else ""
            out.put(f"{item.name}{typed} = {used_default(out, item)}")
        elif may_be_none(item):
            out.put(f"{item.name}: {python_type(item)}")


def used_default(out: Lines, item: Field) -> str:
    value = default_value(item)
    return out.use(value) if value == "ZERO_UUID" else value


def read_fields(out: Lines, struct: Struct, path: Path) -> None:
    for when, fields in sections(struct, path):
        if when is None:
            read_section(out, fields, path)
        else:
            with out.block(f"if {when}:"):
                read_section(out, fields, path)
    if path.flexible:
        read_tags(out, [item for item in struct.fields if item.tag is not None], path)


def read_section(out: Lines, fields: list[Field], path: Path) -> None:
    for run in runs(fields):
        if run[0].kind in FIXED_SIZES:
            read_run(out, run)
        else:
            read_one(out, run[0], path, inline=True)


def read_run(out: Lines, run: list[Field]) -> None:
    size = sum(FIXED_SIZES[item.kind] for item in run)
    if len(run) == 1 and run[0].kind == "bool":
        out.put(f"{run[0].name} = data[at] != 0")
    else:
        unpack = out.use("unpack_" + "".join(FIXED_LETTERS[item.kind] for item in run))
        names = ", ".join(item.name for item in run)
        out.put(f"({names},) = {unpack}(data, at)" if len(run) == 1 else f"{names} = {unpack}(data, at)")
    out.put(f"at += {size}")


def read_one(out: Lines, item: Field, path: Path, inline: bool) -> None:
    """Generate code for a field of variable size. `inline`: read the short compact form, which most values have, without a call."""
    name, encoding = item.name, "compact" if path.flexible else "legacy"
    null = path.null_when(item) is not None
    if item.kind in ("string", "bytes"):
        reader = out.use(f"{encoding}_{'text' if item.kind == 'string' else 'blob'}{'_or_null' if null else ''}")
        if path.flexible and inline:
            out.put("n = data[at]")
            with out.block("if 0 < n < 128:"):
                out.put(f"{name} = data[at + 1 : at + n]" + ('.decode("utf-8", "replace")' if item.kind == "string" else ""), "at += n")
            if null:
                with out.block("elif n == 0:"):
                    out.put(f"{name} = None", "at += 1")
            with out.block("else:"):
                out.put(f"{name}, at = {reader}(data, at)")
        else:
            out.put(f"{name}, at = {reader}(data, at)")
    elif item.kind == "struct":
        assert item.struct is not None
        if not null:
            out.put(f"{name}, at = {item.struct.name}.read(data, at, version)")
            return
        with out.block("if data[at]:  # in a tag, 0 is null" if item.tag is not None else "if data[at] < 128:  # negative: null"):
            out.put(f"{name}, at = {item.struct.name}.read(data, at + 1, version)")
        with out.block("else:"):
            out.put(f"{name} = None", "at += 1")
    elif item.struct is not None:
        out.put(f"{name}, at = {item.struct.name}.read_array(data, at, version)")
    else:
        read_plain_array(out, item, path, encoding, null)
    refuse_null(out, item, path)


def read_plain_array(out: Lines, item: Field, path: Path, encoding: str, null: bool) -> None:
    counter = out.use(f"{encoding}_count{'_or_null' if null else ''}")
    out.put(f"n, at = {counter}(data, at, {kind_size(item.element, path.flexible)})")
    if null:
        with out.block("if n < 0:"):
            out.put(f"{item.name} = None")
        with out.block("else:"):
            read_elements(out, item, encoding)
    else:
        read_elements(out, item, encoding)


def read_elements(out: Lines, item: Field, encoding: str) -> None:
    if item.element in ("int8", "int32"):
        size = FIXED_SIZES[item.element]
        out.put(f"{item.name} = {out.use(item.element + 's')}(data, at, n)", f"at += {size} * n" if size > 1 else "at += n")
    else:
        assert item.element == "string", f"{item.name}: arrays of {item.element} are not supported yet"
        out.put(f"{item.name}, at = {out.use(encoding + '_texts')}(data, at, n)")


def refuse_null(out: Lines, item: Field, path: Path) -> None:
    """Generate code that refuses null, if only some versions of the path allow it, or if a field that may be null shares the reader."""
    when = path.null_when(item)
    shared = item.struct is not None and item.kind == "array" and item.struct.name in out.nullable_arrays
    if when == "" or (when is None and not shared):
        return
    with out.block(f"if {item.name} is None:" if when is None else f"if {item.name} is None and not {when}:"):
        out.put(f'raise {out.use("ProtocolError")}("null is not allowed for {item.name}")')


def read_tags(out: Lines, tagged: list[Field], path: Path) -> None:
    known = sorted((item for item in tagged if path.has(item)), key=lambda item: item.tag or 0)
    if not known:
        with out.block("if data[at]:"):
            out.put(f"at = {out.use('skip_tags')}(data, at)")
        with out.block("else:"):
            out.put("at += 1")
        return
    out.put(f"tags, at = {out.use('tag_count')}(data, at)")
    with out.block("for _ in range(tags):"):
        out.put(f"tag, stop, at = {out.use('tag_head')}(data, at)")
        word = "if"
        for item in known:
            when = condition(item.versions, path.versions)
            with out.block(f"{word} tag == {item.tag}{f' and {when}' if when else ''}:"):
                if item.kind in FIXED_SIZES:
                    read_run(out, [item])
                else:
                    read_one(out, item, path, inline=False)
            word = "elif"
        with out.block("else:"):
            out.put("at = stop")
        with out.block("if at != stop:"):
            out.put(f"raise {out.use('wrong_tag_size')}(tag)")
