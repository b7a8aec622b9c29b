"""The report: one HTML file, and the same data as JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.tables import Tables


STANDARD_OUTPUT: Final = "-"


def write_report(
    tables: Tables,
    html: str | Path | None,
    json_file: str | Path | None = None,
    *,
    version: str,
    per_group: bool = False,
    groups: Iterable[str] | None = None,
    cluster: str | None = None,
) -> list[Path]:
    """Write the report; return its files. Each file is replaced atomically; "-" is standard output.

    `groups`, `cluster`: report only these, if given.
    """
    from pipeline.report.document import document
    from pipeline.report.group_key import group_key
    from pipeline.report.page import page
    from pipeline.report.tables import ReportTables

    content = document(ReportTables(tables, groups, cluster), version=version, per_group=per_group)
    written = []
    if json_file is not None:
        written.append(_write(json_file, json.dumps(content, ensure_ascii=False, indent=1)))
    if html is not None:
        path = Path(html)
        links = {}
        if per_group:
            folder = path.with_name(f"{path.stem}-groups")
            folder.mkdir(exist_ok=True)
            for number, detail in enumerate(content["details"]):
                name = f"{folder.name}/{number:04}-{_file_name_part(detail['group'])}.html"
                links[group_key(detail)] = name
                written.append(_write(path.parent / name, page(content, only=detail)))
        written.append(_write(html, page(content, links=links)))
    return written


def _file_name_part(group: str) -> str:
    """The group as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", group)[:60].strip(".") or "group"


def _write(target: str | Path, text: str) -> Path:
    path = Path(target)
    if target == STANDARD_OUTPUT:
        sys.stdout.buffer.write(f"{text}\n".encode(errors="backslashreplace"))
        sys.stdout.buffer.flush()
        return path
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    return path
