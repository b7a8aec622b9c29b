"""Api key -> its messages and versions."""

from __future__ import annotations

from typing import Final

from protocol.message import Message
from protocol.messages.index import INDEX


class Api:
    """One API. `advertised` is what ApiVersions may offer once a handler is there, `served` what has a codec.

    They differ for Produce: versions 0 to 2 are offered (librdkafka before 2.1 compresses only then) and refused.
    """

    __slots__ = ("advertised", "flexible_from", "key", "name", "request", "response", "served")

    def __init__(
        self,
        key: int,
        name: str,
        request: type[Message],
        response: type[Message],
        advertised: tuple[int, int],
        served: tuple[int, int],
        flexible_from: int,
    ) -> None:
        self.key = key
        self.name = name
        self.request = request
        self.response = response
        self.advertised = advertised
        self.served = served
        self.flexible_from = flexible_from

    def serves(self, version: int) -> bool:
        return self.served[0] <= version <= self.served[1]

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name})"


APIS: Final[dict[int, Api]] = {
    key: Api(key, name, request, response, advertised, request.VERSIONS, request.FLEXIBLE_FROM)
    for key, name, request, response, advertised in INDEX
}
API_VERSIONS: Final = 18

FLEXIBLE_FROM: Final[dict[int, int]] = {key: api.flexible_from for key, api in APIS.items()}


def by_name(name: str) -> Api:
    """For people and tests: `by_name("Heartbeat")`."""
    for api in APIS.values():
        if api.name == name:
            return api
    raise KeyError(name)
