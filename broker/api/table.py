"""The APIs that are served: a module for each, named for its API."""

from __future__ import annotations

from typing import Final, Protocol

from broker.api import (
    api_versions,
    delete_groups,
    describe_cluster,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from broker.api.parts import Parts
from broker.net.dispatch import Route


class ApiModule(Protocol):
    def route(self, parts: Parts) -> Route: ...


Modules = tuple[ApiModule, ...]

CLUSTER: Final[Modules] = (api_versions, find_coordinator, describe_cluster)
MEMBERS: Final[Modules] = (join_group, sync_group, heartbeat, leave_group)
OFFSETS: Final[Modules] = (offset_commit, offset_fetch, offset_delete)
GROUPS: Final[Modules] = (describe_groups, list_groups, delete_groups)

SERVED: Final = (*CLUSTER, *MEMBERS, *OFFSETS, *GROUPS)


def routes(parts: Parts) -> list[Route]:
    return [module.route(parts) for module in SERVED]
