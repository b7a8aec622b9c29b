"""The report as one HTML file that needs no network."""

from __future__ import annotations

import re
from typing import Any, Final

import jinja2
from markupsafe import Markup

from pipeline.report import charts, words
from pipeline.report.first import CLEANUP
from pipeline.report.group_key import GroupKey, group_key
from pipeline.report.stretches import GOOD_STATUSES, STALLED_STATUSES

ROWS_SHOWN: Final = 100
CONTENTS_MAX: Final = 30  # groups in the list of contents
SINGULAR: Final = {"rebalances": "rebalance", "groups with stalled partitions": "group with stalled partitions"}  # labels of numbers
HYGIENE_COLUMNS: Final = ("cluster", "group", "topic", "kind", "detail")


def page(document: dict[str, Any], *, links: dict[GroupKey, str] | None = None, only: dict[str, Any] | None = None) -> str:
    """The page as text. `links`: separate pages of groups; `only`: render only this group."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "plain": words.plain,
        "brief": words.brief,
        "marked": _marked,
        "day": words.day,
        "lines": words.lines,
        "moment": words.moment,
        "time": words.short_time,
        "number": words.number,
        "counted": words.counted,
        "cause": lambda cause: cause.replace("_", " "),
        "family": charts.family,
        "to": words.range_text,
    }
    environment.globals |= {"charts": charts, "interval": words.interval, "membership": membership, "SINGULAR": SINGULAR}
    environment.globals |= {"ROWS_SHOWN": ROWS_SHOWN, "CONTENTS_MAX": CONTENTS_MAX, "GOOD_STATUSES": GOOD_STATUSES}
    # Jinja cannot load templates from a zipped package.
    environment.loader = jinja2.DictLoader({name: _read(name) for name in ("page.html", "group.html")})
    style, script = (Markup(_read(name)) for name in ("style.css", "page.js"))
    template = environment.get_template("page.html")
    details = [only] if only is not None else document["details"]
    links = dict(links or {})
    if only is None:
        links = {group_key(detail): f"#group-{number}" for number, detail in enumerate(details)} | links
    first = _by_group(document["first"])
    return template.render(
        doc=document,
        details=details,
        only=only,
        links=links,
        several_clusters=len(document["clusters"]) > 1,
        first=first,
        savings={group_key(row): row for row in document["savings"]},
        fights={group_key(row) for row in document["hygiene"] if row["kind"] == "duplicate_instance"},
        needs_attention=lambda one: _needs_attention(one, first.get(group_key(one), [])),
        tidy=_hygiene_rows(document["hygiene"]),
        style=style,
        script=script,
    )


def membership(detail: dict[str, Any]) -> str:
    """Whether the members of a group are static, dynamic or mixed; of a group without members, those it had last, as in its advice."""
    about, advice = detail["about"], detail["advice"]
    if about["members"]:
        static_share = about["static_members"] / about["members"]
    elif advice is not None and detail["spells"]["count"]:
        static_share = advice["static_share"]
    else:
        return "unknown"
    return "static" if static_share == 1 else "mixed" if static_share else "dynamic"


def _needs_attention(detail: dict[str, Any], first: list[dict[str, Any]]) -> bool:
    """Whether the group should change something that costs or loses something, or has stalled partitions."""
    return any(row["urgency"] > CLEANUP for row in first) or detail["about"]["worst_status"] in STALLED_STATUSES


def _by_group(rows: list[dict[str, Any]]) -> dict[GroupKey, list[dict[str, Any]]]:
    rows_by_group: dict[GroupKey, list[dict[str, Any]]] = {}
    for row in rows:
        rows_by_group.setdefault(group_key(row), []).append(row)
    return rows_by_group


def _hygiene_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join rows that differ only in the partition."""
    partitions_by_key: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        partitions = partitions_by_key.setdefault(tuple(row[name] for name in HYGIENE_COLUMNS), [])
        if row["topic_partition"] is not None:
            partitions.append(row["topic_partition"])
    return [dict(zip(HYGIENE_COLUMNS, key, strict=True)) | {"partitions": words.ranges(partitions)} for key, partitions in partitions_by_key.items()]


def _marked(text: str) -> Markup:
    """Text with `...` as <code>."""
    parts = re.split(r"`([^`]*)`", words.brief(text, 420))
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def _read(name: str) -> str:
    from importlib.resources import files

    return files("pipeline.report").joinpath(name).read_text(encoding="utf-8")
