"""Reads the files that identify a data directory, without writing missing ones as a broker does."""

from __future__ import annotations

import os

from cli.logs.files import InputError, lock_holder
from cli.logs.nodes import NodesDirectory
from cli.logs.text import shown
from storage.directory import FORMAT_FILE, FORMER_SHARED_FORMAT, SHARED_FORMAT, former_shared_format


def format_text(directory: str) -> str | None:
    """The content of the file that names the directory's format. None without that file: the directory is new, or Kafka's."""
    path = os.path.join(directory, FORMAT_FILE)
    if not os.path.lexists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(100).strip()


def format_problem(directory: str) -> str:
    """Why this version cannot read the directory, or ""."""
    text = format_text(directory)
    if text == str(FORMER_SHARED_FORMAT):
        return former_shared_format(directory)
    if text is None or (text.isascii() and text.isdigit() and int(text) <= SHARED_FORMAT):
        return ""
    return f"data directory {directory} has format {shown(text) if text else 'nothing'} and this version reads up to {SHARED_FORMAT}"


def nodes_of(directory: str) -> NodesDirectory | None:
    """The nodes of the directory; None if it is that of a single broker."""
    return NodesDirectory(directory) if directory and format_text(directory) == str(SHARED_FORMAT) else None


def user_of(directory: str, nodes: NodesDirectory | None) -> str | None:
    """The broker or nodes that use the directory, as text; None if it is not in use."""
    return lock_holder(directory) if nodes is None else nodes.used_by()


class NewerFormat(InputError):
    """The directory has a newer format, so nothing in it is read."""


def refuse_newer_format(directory: str) -> None:
    if directory and (problem := format_problem(directory)):
        raise NewerFormat(f"{problem}; use the version that wrote it")


def meta_problem(path: str) -> str:
    """Why a broker does not start with this meta.properties, or ""."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file.read(100_000).splitlines()]
    meta = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "!")))
    if meta.get("version") not in ("0", "1"):
        return f"its version is {shown(meta.get('version'))}"
    if not meta.get("cluster.id"):
        return "it has no cluster.id"
    node = meta.get("node.id", meta.get("broker.id", ""))
    return "" if node.isascii() and node.isdigit() else f"its node.id is {shown(node or None)}"
