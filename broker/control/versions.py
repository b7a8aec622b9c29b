"""Which versions of an API a cluster serves, so that a client meets an older broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.control.fields import Refused
from broker.faults.fault import APIS_BY_NAME, BadFault, api_name
from broker.net.dispatch import Route
from protocol.apis import API_VERSIONS

Limits = Mapping[int, tuple[int, int]]  # by key of the API: its oldest and newest version; newest -1: it is not served
NOT_SERVED: Final = (0, -1)


def read_limits(document: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    """`{"OffsetCommit": 7, "Heartbeat": [0, 3], "DeleteGroups": null}`. Raises Refused."""
    limits = {}
    for name, wanted in document.items():
        try:
            api = APIS_BY_NAME[api_name(name)]
        except BadFault as unknown:
            raise Refused(400, str(unknown), unknown.hint) from None
        if api.key == API_VERSIONS:
            raise Refused(400, "ApiVersions cannot be limited", "clients ask it which versions there are")
        given = [0, wanted] if type(wanted) is int else wanted
        if given is None:
            limits[api.key] = NOT_SERVED
        elif isinstance(given, list) and len(given) == 2 and all(type(version) is int for version in given) and 0 <= given[0] <= given[1]:
            if given[0] > api.served[1] or given[1] < api.served[0]:
                raise Refused(400, f"{api.name}: none of these versions is served", f"served are {api.served[0]} to {api.served[1]}; null: the API is not served")
            limits[api.key] = given[0], given[1]
        else:
            raise Refused(400, f"{api.name}: {wanted!r} is no limit", "the newest version, [oldest, newest], or null: the API is not served")
    return limits


def limit(routes: dict[int, Route], limits: Limits) -> None:
    for key, (oldest, newest) in limits.items():
        if newest < 0:
            routes.pop(key, None)
        elif key in routes:
            routes[key].limit(oldest, newest)


def advertised(routes: Mapping[int, Route]) -> dict[str, list[int]]:
    return {route.api.name: list(route.advertised) for route in routes.values() if route.advertised[1] >= 0}
