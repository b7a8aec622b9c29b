"""Faults: install, look at, release, remove, and wait until one has fired."""

from __future__ import annotations

from typing import Any

from broker.control.fields import WHOLE, Field, Refused, timeout_field
from broker.control.verb import Call, Verb
from broker.faults.book import Installed
from broker.faults.fault import BadFault, Fault, of_kfake

EXAMPLE = {"apis": ["OffsetCommit"], "group": "billing", "action": {"error": "REQUEST_TIMED_OUT", "apply": "before"}, "count": 1}


def of(call: Call) -> Installed:
    text = call.path["id"]
    installed = call.of.traffic.book.get(int(text)) if text.isascii() and text.isdigit() else None
    if installed is None:
        raise Refused(404, f"there is no fault {text}", "GET faults lists them")
    return installed


async def install(call: Call) -> Any:
    """One fault, a list of them, or the {"rules": [...]} of `kcl fake`."""
    document = call.fields["fault"]
    several = document.get("rules", document.get("faults")) if isinstance(document, dict) and len(document) == 1 else document
    documents = several if isinstance(several, list) else [document]
    rules = isinstance(document, dict) and "rules" in document
    try:
        faults = [Fault.parse(of_kfake(each) if rules else each) for each in documents]
        for fault in faults:
            call.of.traffic.carrier.check(fault)
    except BadFault as error:
        raise Refused(400, str(error), error.hint) from None
    reports = [call.of.traffic.install(fault) for fault in faults]
    return {"faults": reports} if isinstance(several, list) else reports[0]


async def list_all(call: Call) -> Any:
    return {"faults": [installed.report() for installed in call.of.traffic.book]}


async def show(call: Call) -> Any:
    return of(call).report()


async def release(call: Call) -> Any:
    installed = of(call)
    return {"released": call.of.traffic.carrier.release(installed)}


async def remove(call: Call) -> Any:
    installed = of(call)
    call.of.traffic.carrier.release(installed)
    call.of.traffic.book.remove(installed.id)
    return installed.report() | {"story": installed.story()}


async def remove_all(call: Call) -> Any:
    book = call.of.traffic.book
    removed = [installed.report() | {"story": installed.story()} for installed in list(book)]
    for installed in list(book):
        call.of.traffic.carrier.release(installed)
    book.clear()
    return {"faults": removed}


async def wait(call: Call) -> Any:
    installed = of(call)
    hits = call.fields["hits"]
    if not await call.of.until(lambda: installed.hits >= hits, call.fields["timeout_ms"]):
        raise Refused(408, f"fault {installed.id} has fired {installed.hits} times and not {hits}", installed.story(), state=installed.report())
    return installed.report()


PATH = "/v1/clusters/{cluster}/faults"
VERBS = (
    Verb("POST", PATH, "install a fault, or a list of them; also as kfake writes them", install, example=EXAMPLE, raw="fault"),
    Verb("GET", PATH, "list the faults with their hits and nearest misses", list_all),
    Verb("DELETE", PATH, "remove all faults", remove_all),
    Verb("GET", PATH + "/{id}", "show a fault", show),
    Verb("DELETE", PATH + "/{id}", "remove a fault; what it holds goes on", remove),
    Verb("POST", PATH + "/{id}/release", "let go the requests that the fault holds", release, example={}),
    Verb("POST", PATH + "/{id}/wait", "wait until the fault has fired", wait, (Field("hits", WHOLE, "how often", 1, least=1), timeout_field()), {"hits": 1}),
)
