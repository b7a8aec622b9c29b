"""ApiVersions: the supported APIs and versions; usually a client's first request.

From version 5 on, a client may say which node of which cluster it means to reach, so that it notices when the address leads to another one
(KIP-1242): it then begins again with its bootstrap servers.
"""

from __future__ import annotations

import re
from typing import Final

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, ConstantReply, Response, Route
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

GROUP_VERSION = "group.version"  # a feature of Kafka; with level 1 the brokers serve groups of the consumer protocol
GROUP_LEVEL = 1
LEVEL_0_FROM = 4  # older clients fail on a feature that has level 0
FEATURES_EPOCH = 0  # it grows when a level changes, which it cannot here; clients ignore the levels of -1

NO_NODE: Final = -1  # the client does not say which node it means
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def route(parts: BrokerParts) -> Route:
    return Route(ApiVersionsRequest, ApiVersions(parts).handle, error_response)


class ApiVersions:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._routes = parts.routes  # by API key; complete before the first request
        self._accepted: dict[bool, ConstantReply] = {}  # the reply to every valid request, with and without the supported levels of features

    def handle(self, call: Call, request: ApiVersionsRequest) -> Response:
        software = (request.client_software_name, request.client_software_version)
        if call.version >= 3 and not all(_CLIENT_SOFTWARE.fullmatch(text) for text in software):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        if (request.cluster_id is None) != (request.node_id == NO_NODE):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        if request.cluster_id is not None and (request.cluster_id, request.node_id) != (self._node.cluster_id, self._node.id):
            return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED)
        tells_levels = call.version >= LEVEL_0_FROM
        accepted = self._accepted.get(tells_levels)
        if accepted is None:
            ranges = [ApiVersion(route.key, *route.advertised) for route in self._routes.values() if route.advertised[1] >= 0]
            accepted = self._accepted[tells_levels] = ConstantReply(
                ApiVersionsResponse(
                    ErrorCode.NONE,
                    ranges,
                    supported_features=[SupportedFeatureKey(GROUP_VERSION, 0, GROUP_LEVEL)] if tells_levels else [],
                    finalized_features_epoch=FEATURES_EPOCH,
                    finalized_features=[FinalizedFeatureKey(GROUP_VERSION, GROUP_LEVEL, GROUP_LEVEL)],
                )
            )
        return accepted


def error_response(request: ApiVersionsRequest | None, version: int, error: int) -> Response:
    """The range of ApiVersions itself (key 18), so that a newer client can retry with a supported version."""
    return ApiVersionsResponse(error, [ApiVersion(API_VERSIONS, *APIS[API_VERSIONS].advertised)])
