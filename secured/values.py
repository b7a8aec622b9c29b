"""`${env:NAME}`, `${file:PATH}` and Kafka's `${file:PATH:KEY}` and `${directory:PATH:FILE}` within a value. Anything else in braces stays as it is."""

from __future__ import annotations

import os
import re
from typing import Final

from secured.errors import wrong_settings
from secured.properties import PropertiesError, parse_properties

REFERENCE: Final = re.compile(r"\$\{(env|file|directory):([^}]+)\}")
BYTES_MAX: Final = 1 << 20


def expanded(text: str, where: str) -> str:
    """`where`: the setting and its file. The errors name what is missing, never a value."""
    return REFERENCE.sub(lambda match: referred(match[1], match[2], where), text)


def referred(kind: str, target: str, where: str) -> str:
    if kind == "env":
        value = os.environ.get(target)
        if value is None:
            raise wrong_settings(f"{where} uses the environment variable {target}, which is not set", f"export {target}")
        return value
    path, _, key = target.partition(":")
    if kind == "directory":
        return content(os.path.join(path, key), where)
    text = content(path, where)
    if not key:
        return text
    try:
        pairs = dict(parse_properties(text))
    except PropertiesError:
        pairs = {}
    if key not in pairs:
        raise wrong_settings(f"{where} uses {key} in {path}, which has no such line")
    return pairs[key]


def content(path: str, where: str) -> str:
    """The text of a file, without the line feed at its end."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(BYTES_MAX).rstrip("\r\n")
    except OSError as error:
        raise wrong_settings(f"{where} uses the file {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise wrong_settings(f"{where} uses the file {path}, which is not UTF-8 text") from None
