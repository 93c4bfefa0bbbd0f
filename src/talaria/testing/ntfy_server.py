"""A strict ntfy server on loopback: topics, tokens, files and streams as its documentation describes them."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from talaria.core.ids import new_id
from talaria.testing.platform_suite import FailureKind

_MESSAGE_LIMIT = 4096
_FIELDS = frozenset(
    {"topic", "message", "title", "tags", "priority", "attach", "filename", "markdown", "icon", "click", "actions",
     "email", "call", "delay", "sequence_id"}
)  # fmt: skip
_CODES = {400: 40024, 401: 40101, 403: 40301, 404: 40401, 413: 41301, 429: 42901, 500: 50001}


class NtfyServer:
    """Topics with their messages. Only holders of ``token`` may read and write, and only the given topics."""

    def __init__(self, token: str, topics: frozenset[str], *, file_limit: int, keepalive: float) -> None:
        self.token = token
        self.topics = topics
        self.url = ""
        self.failure: FailureKind | None = None
        self.messages: list[dict[str, Any]] = []
        self._files: dict[str, tuple[bytes, str]] = {}
        self._file_limit = file_limit
        self._keepalive = keepalive
        self._changed = asyncio.Condition()
        self._streams = 0
        self._transports: set[asyncio.BaseTransport] = set()

    @property
    def is_followed(self) -> bool:
        """Return whether a client has subscribed to a topic."""
        return self._streams > 0

    async def publish(self, topic: str, text: str, **fields: Any) -> dict[str, Any]:
        """Add a message, as another client of the topic does."""
        message = {"id": new_id()[-12:], "time": int(time.time()), "event": "message", "topic": topic} | fields
        message["message"] = text.strip() or "triggered"
        async with self._changed:
            self.messages.append(message)
            self._changed.notify_all()
        return message

    async def publish_file(self, topic: str, name: str, data: bytes, text: str = "", **fields: Any) -> dict[str, Any]:
        """Add a message with a file."""
        key = f"{new_id()[-12:]}.bin"
        media_type = fields.pop("media_type", "application/octet-stream")
        self._files[key] = (data, media_type)
        file = {"name": name, "type": media_type, "size": len(data), "url": f"{self.url}/file/{key}"}
        return await self.publish(topic, text or f"You received a file: {name}", attachment=file, **fields)

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        application = web.Application(middlewares=[self._guard], client_max_size=self._file_limit + 1024)
        application.add_routes(
            [
                web.post("/", self._publish_json),
                web.get("/file/{key}", self._download),
                web.get("/{topics}/sse", self._stream),
                web.get("/{topic}/auth", self._check_access),
                web.route("*", "/{topic}", self._publish_body),
            ]
        )
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        given = request.headers.get("authorization", "")
        if self.failure == "revoked" or (given and given != f"Bearer {self.token}"):
            return _refuse(401, "unauthorized")
        if not given:
            return _refuse(403, "forbidden")
        response: web.StreamResponse = await handler(request)
        return response

    async def _publish_json(self, request: web.Request) -> web.StreamResponse:
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except msgspec.DecodeError:
            return _refuse(400, "invalid request: request body must be message JSON")
        if unknown := body.keys() - _FIELDS:
            return _refuse(400, f"unknown fields: {', '.join(sorted(unknown))}")
        fields: dict[str, Any] = {name: body[name] for name in ("title", "tags") if name in body}
        if body.get("markdown"):
            fields["content_type"] = "text/markdown"
        return await self._add(body.get("topic", ""), str(body.get("message", "")).encode(), fields)

    async def _publish_body(self, request: web.Request) -> web.StreamResponse:
        if request.method not in {"PUT", "POST"}:
            return _refuse(404, "page not found")
        fields = {name: request.query[name] for name in ("title",) if name in request.query}
        topic, body = request.match_info["topic"], await request.read()
        if "filename" not in request.query:
            return await self._add(topic, body, fields)
        if len(body) > self._file_limit:
            return _refuse(413, "attachment too large")
        if (refusal := await self._find_refusal(topic)) is not None:
            return refusal
        made = await self.publish_file(
            topic, request.query["filename"], body, request.query.get("message", ""),
            media_type=request.content_type, **fields,
        )  # fmt: skip
        return web.json_response(made)

    async def _add(self, topic: str, body: bytes, fields: Mapping[str, Any]) -> web.StreamResponse:
        if (refusal := await self._find_refusal(topic)) is not None:
            return refusal
        if len(body) > _MESSAGE_LIMIT:
            return web.json_response(await self.publish_file(topic, "attachment.txt", body, **fields))
        return web.json_response(await self.publish(topic, body.decode(), **fields))

    async def _find_refusal(self, topic: str) -> web.Response | None:
        """Return why nothing is published, if so."""
        if topic not in self.topics:
            return _refuse(403, "forbidden")
        if self.failure == "slow_down":
            return _refuse(429, "limit reached: too many requests", {"retry-after": "7"})
        if self.failure == "failing":
            return _refuse(500, "internal server error")
        if self.failure == "silent":
            await asyncio.Event().wait()
        return None

    async def _check_access(self, request: web.Request) -> web.StreamResponse:
        known = request.match_info["topic"] in self.topics
        return web.json_response({"success": True}) if known else _refuse(403, "forbidden")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        found = self._files.get(request.match_info["key"])
        return web.Response(body=found[0], content_type=found[1]) if found else _refuse(404, "page not found")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        topics = request.match_info["topics"].split(",")
        if not self.topics.issuperset(topics):
            return _refuse(403, "forbidden")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(_encode_event("open", topics))
        position = self._find(request.query.get("since", "none"))
        self._streams += 1
        while True:
            while position < len(self.messages) and self.failure != "deaf":
                if (message := self.messages[position])["topic"] in topics:
                    await response.write(b"data: " + msgspec.json.encode(message) + b"\n\n")
                position += 1
            try:
                async with asyncio.timeout(self._keepalive), self._changed:
                    await self._changed.wait()
            except TimeoutError:
                if self.failure != "deaf":
                    await response.write(_encode_event("keepalive", topics))

    def _find(self, since: str) -> int:
        """Return where a stream starts: nowhere back, at a time, or after a message."""
        if since == "none":
            return len(self.messages)
        if since.isdigit():
            return next((at for at, one in enumerate(self.messages) if one["time"] >= int(since)), len(self.messages))
        return next((at + 1 for at, one in enumerate(self.messages) if one["id"] == since), 0)


@asynccontextmanager
async def ntfy_server(
    token: str, topics: frozenset[str], *, file_limit: int = 1024 * 1024, keepalive: float = 0.2
) -> AsyncIterator[NtfyServer]:
    """Serve topics on a free port."""
    server = NtfyServer(token, topics, file_limit=file_limit, keepalive=keepalive)
    runner = web.AppRunner(server.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.hang_up()
        await runner.cleanup()


def _encode_event(kind: str, topics: list[str]) -> bytes:
    data = {"id": new_id()[-12:], "time": int(time.time()), "event": kind, "topic": ",".join(topics)}
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def _refuse(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"code": _CODES[status], "http": status, "error": text}, status=status, headers=headers)
