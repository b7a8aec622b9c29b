"""The HTTP side of the test control: who may call, which verb a path names, and its fields."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from typing import Any, Final

from broker.control import table
from broker.control.fields import Refused, read_fields
from broker.control.verb import Call, Clusters, Verb
from broker.http.server import HttpServer, Reply, Request
from broker.settings.endpoints import is_loopback

DEFAULT: Final = "default"  # the cluster of the process's own listeners


class Service:
    def __init__(self, host: Clusters, verbs: Sequence[Verb], token: str, *, anywhere: bool, version: str) -> None:
        """`anywhere`: requests may name any host."""
        self._host = host
        self._verbs = verbs
        self._token = token
        self._anywhere = anywhere
        self._version = version
        http = HttpServer(self._handle)
        self.listen = http.listen
        self.close = http.close

    async def _handle(self, request: Request) -> Reply:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            return await self._answer(request)
        except Refused as refused:
            return Reply(refused.status, refused.document)

    def _refusal(self, request: Request) -> Reply | None:
        """Keep web pages out: they can send no token, and their host name is not ours."""
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] or host
        if not self._anywhere and not (is_loopback(name.strip("[]")) or name == "localhost"):
            return Reply(403, {"error": f"the host {host!r} is not this machine", "hint": "name it 127.0.0.1 or localhost"})
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return Reply(
                401,
                {"error": "the token is missing or wrong", "hint": "Authorization: Bearer TOKEN; the process prints the token when it starts"},
                headers=(("www-authenticate", "Bearer"),),
            )
        return None

    async def _answer(self, request: Request) -> Reply:
        if request.method == "GET" and request.path.rstrip("/") == "/v1":
            return Reply(200, table.listed(self._verbs, self._version))
        if request.method == "GET" and request.path == "/v1/openapi.json":
            return Reply(200, table.openapi(self._verbs, self._version))
        path = request.path
        if path.rstrip("/") == "/faults" or path.startswith("/faults/"):
            path = f"/v1/clusters/{DEFAULT}{path}"  # as kfake has it
        verb, values, methods = table.find(self._verbs, request.method, path)
        if verb is None:
            if methods:
                raise Refused(400, f"{request.path} takes {', '.join(sorted(set(methods)))}, not {request.method}")
            raise Refused(404, f"there is no {request.method} {request.path}", "GET /v1 lists the calls")
        cluster = None
        if "cluster" in values:
            cluster = self._host.clusters.get(values["cluster"])
            if cluster is None:
                raise Refused(404, f"there is no cluster {values['cluster']!r}", f"clusters: {', '.join(list(self._host.clusters)[:20])}")
        if request.method == "GET":
            fields = read_fields(verb.fields, request.query, as_text=True)
        elif verb.raw:
            fields = {verb.raw: document_of(request.body)}
        else:
            given = document_of(request.body)
            if not isinstance(given, dict):
                raise Refused(400, "the body is an object of fields", f"for example {json.dumps(verb.example or {})}")
            fields = read_fields(verb.fields, given)
        return Reply(200, await verb.run(Call(self._host, cluster, values, fields)))


def document_of(body: bytes) -> Any:
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
