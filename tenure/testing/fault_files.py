"""Faults in a file, in JSON or YAML: a list of them, or an object with the one key `faults`, or one fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

YAML_ENDINGS = (".yaml", ".yml")


def read_faults(path: Path) -> list[dict[str, Any]]:
    """Raises ValueError that names the file."""
    text = path.read_text(encoding="utf-8")
    try:
        document = parse_yaml(text) if path.suffix in YAML_ENDINGS else json.loads(text)
    except ImportError:
        raise ValueError(f"{path}: no parser of YAML is installed: `pip install tenure[yaml]`, or write the file in JSON") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if isinstance(document, dict):
        document = document["faults"] if set(document) == {"faults"} else [document]
    if not isinstance(document, list) or not document:
        raise ValueError(f"{path}: a list of faults was expected")
    return document


def parse_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
