"""What happened in a cluster, in words: the report of a failed test."""

from __future__ import annotations

from typing import Any

from .assertions import Group
from .control import ControlError
from .verbs import Verbs

REQUESTS = 50


def story_of(cluster: Verbs) -> str:
    """The histories of the groups, the faults with their hits, the last requests and the broker's warnings; parts that cannot be read are left out."""
    parts: list[str] = []
    try:
        for name in sorted({*cluster.groups(), *cluster.groups_named}):
            text = Group(cluster, name).text
            parts += [f"group {name}:", *(f"  {line}" for line in text.splitlines())] if text else [f"group {name}: no history"]
        reports = cluster.control.get(f"/v1/clusters/{cluster.id}/faults")["faults"]
        parts += [fault_line(report) for report in reports]
        lines = cluster.log_lines()
        parts += ["the broker's warnings:", *(f"  {line}" for line in lines[-20:])] if lines else []
        requests = cluster.requests(REQUESTS)
        parts += [f"the last {len(requests)} requests:", *(f"  {request_line(request)}" for request in requests)] if requests else []
    except (ControlError, OSError) as error:
        parts.append(f"more cannot be read: {error}")
    return "\n".join(parts)


def fault_line(report: dict[str, Any]) -> str:
    misses = report["nearest_misses"]
    near = f"; nearest miss: {misses[-1]['api']} of {misses[-1]['client_id']!r}: {misses[-1]['why']}" if misses else ""
    return f"fault {report['id']} {report['fault']}: {report['hits']} hits{near}"


def request_line(request: dict[str, Any]) -> str:
    outcome = request["error"] or "ok"
    fault = f" (fault {request['fault']})" if request["fault"] else ""
    return f"{request['api']} v{request['version']} of {request['client_id'] or request['peer']}: {outcome} in {request['ms']} ms{fault}"
