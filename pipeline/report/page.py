"""The page: the document of `document.py` in HTML, one file that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from pipeline.report import charts, words

HERE: Final = Path(__file__).resolve().parent
ROWS_SHOWN: Final = 100


def page(document: dict[str, Any], *, links: dict[str, str] | None = None, only: dict[str, Any] | None = None) -> str:
    """`links`: pages of their own, by group. `only`: the page of this one group."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "plain": words.plain,
        "brief": words.brief,
        "lines": words.lines,
        "moment": words.moment,
        "time": words.short_time,
        "number": words.number,
        "cause": lambda cause: cause.replace("_", " "),
        "family": charts.family,
    }
    environment.globals |= {"charts": charts, "interval": words.interval, "ROWS_SHOWN": ROWS_SHOWN}
    # What the pages are made of is read here, not found by Jinja: a zipped package has no folder to look into.
    environment.loader = jinja2.DictLoader({name: _read(name) for name in ("page.html", "group.html")})
    style, script = (Markup(_read(name)) for name in ("style.css", "page.js"))
    template = environment.get_template("page.html")
    details = [only] if only is not None else document["details"]
    return template.render(doc=document, details=details, only=only, links=links or {}, style=style, script=script)


def _read(name: str) -> str:
    from importlib.resources import files

    return files("pipeline.report").joinpath(name).read_text(encoding="utf-8")
