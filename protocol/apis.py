"""The APIs by key, with their messages and versions."""

from __future__ import annotations

from typing import Final

from protocol.headers import API_VERSIONS as API_VERSIONS
from protocol.message import Message
from protocol.messages.index import INDEX


class Api:
    """One API. `advertised` is the range of versions in ApiVersions if the broker has a handler for it, `coded` the range with a codec, and
    `served` the versions in both.

    Versions 0 to 2 of Produce are advertised but refused, since librdkafka before 2.1 compresses only if they are advertised.
    """

    __slots__ = ("advertised", "coded", "flexible_from", "key", "name", "request", "response", "served")

    def __init__(
        self,
        key: int,
        name: str,
        request: type[Message],
        response: type[Message],
        advertised: tuple[int, int],
        coded: tuple[int, int],
        flexible_from: int,
    ) -> None:
        self.key = key
        self.name = name
        self.request = request
        self.response = response
        self.advertised = advertised
        self.coded = coded
        # An API between nodes is never advertised, and served in all versions.
        self.served = coded if advertised[1] < 0 else (max(advertised[0], coded[0]), min(advertised[1], coded[1]))
        self.flexible_from = flexible_from

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name})"


APIS: Final[dict[int, Api]] = {
    key: Api(key, name, request, response, advertised, request.VERSIONS, request.FLEXIBLE_FROM)
    for key, name, request, response, advertised in INDEX
}
