"""A strict LINE platform on loopback: the Messaging API, and signed webhooks that are redelivered."""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from talaria.core.ids import new_id
from talaria.platforms.signatures import sign_base64
from talaria.testing.far_side import FailureKind, Post, WebhookSender, serve_application

BOT = "U00000000000000000000000000000bot"
_TEXT_LIMIT, _MOST_MESSAGES, _MOST_ITEMS, _LABEL, _DATA = 5000, 5, 13, 20, 300
_FIELDS = {
    "text": {"type", "text", "quoteToken", "quickReply"},
    "image": {"type", "originalContentUrl", "previewImageUrl", "quickReply"},
}


class LineServer:
    """People and groups by id, with the messages that the account has sent them.

    ``tunnel`` is the address to which posts for the public one are forwarded.
    """

    def __init__(self, token: str, secret: str, people: Mapping[str, str], groups: frozenset[str]) -> None:
        self.token = token
        self.secret = secret
        self.people = people
        self.groups = groups
        self.url = ""
        self.tunnel = ""
        self.endpoint = ""
        self.failure: FailureKind | None = None
        self.sent: list[dict[str, Any]] = []
        self.loading: list[str] = []
        self.sender = WebhookSender(self._make_post, lambda: self.tunnel if self.endpoint else "")
        self._contents: dict[str, bytes] = {}
        self._quotes: dict[str, str] = {}
        self._accepted: dict[str, list[dict[str, str]]] = {}
        self._transports: set[asyncio.BaseTransport] = set()

    def say(self, chat: str, user: str, message: Mapping[str, Any]) -> str:
        """Let a person send a message, and return its id."""
        message_id, token = str(uuid.uuid4().int)[:18], new_id()
        self._quotes[token] = message_id
        given = {"id": message_id, "quoteToken": token, **message}
        self.sender.add(self._make_event("message", chat, user, {"message": given, "replyToken": new_id()}))
        return message_id

    def send_file(self, chat: str, user: str, name: str, data: bytes) -> None:
        """Let a person send a file."""
        message_id = self.say(chat, user, {"type": "file", "fileName": name, "fileSize": len(data)})
        self._contents[message_id] = data

    def press(self, chat: str, user: str, data: str) -> None:
        """Let a person press a button."""
        self.sender.add(self._make_event("postback", chat, user, {"postback": {"data": data}, "replyToken": new_id()}))

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.get("/v2/bot/info", self._show_bot),
                web.put("/v2/bot/channel/webhook/endpoint", self._set_endpoint),
                web.post("/v2/bot/message/push", self._push),
                web.post("/v2/bot/chat/loading/start", self._load),
                web.get("/v2/bot/profile/{user}", self._show_profile),
                web.get("/v2/bot/group/{group}/member/{user}", self._show_profile),
                web.get("/v2/bot/message/{id}/content", self._download_content),
            ]
        )
        return application

    def _make_event(self, kind: str, chat: str, user: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        source = {"type": "group", "groupId": chat} if chat in self.groups else {"type": "user"}
        common = {"type": kind, "mode": "active", "timestamp": int(time.time() * 1000), "webhookEventId": new_id()}
        return common | {"source": source | {"userId": user}, **fields}

    def _make_post(self, item: object, is_again: bool) -> Post:
        assert isinstance(item, dict)
        event = {**item, "deliveryContext": {"isRedelivery": is_again}}
        body = msgspec.json.encode({"destination": BOT, "events": [event]})
        headers = {"content-type": "application/json; charset=utf-8", "user-agent": "LineBotWebhook/2.0"}
        return body, headers | {"x-line-signature": sign_base64(self.secret, body)}

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        if self.failure == "revoked" or request.headers.get("authorization") != f"Bearer {self.token}":
            return _refuse(401, "Authentication failed. Confirm that the access token is valid.")
        response: web.StreamResponse = await handler(request)
        return response

    async def _show_bot(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"userId": BOT, "basicId": "@123abcde", "displayName": "Winged", "chatMode": "bot"})

    async def _set_endpoint(self, request: web.Request) -> web.StreamResponse:
        endpoint = (await request.json()).get("endpoint", "")
        if not re.fullmatch(r"https://\S{1,492}", endpoint):
            return _refuse(400, "Invalid webhook endpoint URL")
        self.endpoint = endpoint
        return web.json_response({})

    async def _push(self, request: web.Request) -> web.StreamResponse:
        body, key = await request.json(), request.headers.get("x-line-retry-key", "")
        if problem := self._find_problem(body, key):
            return _refuse(400, problem)
        if key in self._accepted:
            given = {"message": "The retry key is already accepted", "sentMessages": self._accepted[key]}
            return web.json_response(given, status=409, headers={"x-line-accepted-request-id": new_id()})
        match self.failure:
            case "slow_down":
                return _refuse(429, "The API rate limit has been exceeded. Try again later.")
            case "failing":
                return _refuse(500, "Internal server error")
            case "silent":
                await asyncio.Event().wait()
        sent = []
        for message in body["messages"]:
            message_id, token = str(uuid.uuid4().int)[:18], new_id()
            quoted = self._quotes.get(message.get("quoteToken", ""), "")
            self._quotes[token] = message_id
            self.sent.append({"id": message_id, "to": body["to"], "quoted": quoted, **message})
            sent.append({"id": message_id, "quoteToken": token})
        self._accepted[key] = sent
        return web.json_response({"sentMessages": sent})

    def _find_problem(self, body: Mapping[str, Any], key: str) -> str:
        messages = body.get("messages", [])
        if body.keys() - {"to", "messages", "notificationDisabled"}:
            return "The request body has unknown properties"
        if body.get("to") not in self.people and body.get("to") not in self.groups:
            return "The property, 'to', in the request body is invalid"
        if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", key):
            return "Invalid retry key"
        if not 1 <= len(messages) <= _MOST_MESSAGES:
            return "Size must be between 1 and 5"
        return next(filter(None, map(self._find_message_problem, messages)), "")

    def _find_message_problem(self, message: Mapping[str, Any]) -> str:
        if message.keys() - _FIELDS.get(message.get("type", ""), set()):
            return "A message object has unknown properties"
        if message["type"] == "text" and not 1 <= _measure_length(message["text"].strip()) <= _TEXT_LIMIT:
            return "Length must be between 1 and 5000"
        if message["type"] == "text" and _measure_length(message["text"]) > _TEXT_LIMIT:
            return "Length must be between 1 and 5000"
        if message["type"] == "image" and not message["originalContentUrl"].startswith("https://"):
            return "Must be a valid HTTPS URL"
        if message.get("quoteToken", "") and message["quoteToken"] not in self._quotes:
            return "Invalid quoteToken"
        items = message.get("quickReply", {}).get("items", [])
        actions = [item["action"] for item in items]
        is_wrong = any(not 1 <= len(one["label"]) <= _LABEL or len(one["data"]) > _DATA for one in actions)
        return "A quick reply is invalid" if is_wrong or len(items) > _MOST_ITEMS else ""

    async def _load(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("chatId") not in self.people or body.get("loadingSeconds", 20) not in range(5, 61, 5):
            return _refuse(400, "The request body is invalid")
        self.loading.append(body["chatId"])
        return web.json_response({}, status=202)

    async def _show_profile(self, request: web.Request) -> web.StreamResponse:
        user = request.match_info["user"]
        if user not in self.people:
            return _refuse(404, "Not found")
        return web.json_response({"userId": user, "displayName": self.people[user]})

    async def _download_content(self, request: web.Request) -> web.StreamResponse:
        data = self._contents.get(request.match_info["id"])
        return web.Response(body=data) if data is not None else _refuse(404, "Not found")


@asynccontextmanager
async def line_server(
    token: str, secret: str, people: Mapping[str, str], groups: frozenset[str] = frozenset()
) -> AsyncIterator[LineServer]:
    """Serve the API on a free port, and deliver webhooks."""
    server = LineServer(token, secret, people, groups)
    async with serve_application(server.application()) as server.url, server.sender.running():
        try:
            yield server
        finally:
            server.hang_up()


def _measure_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _refuse(status: int, text: str) -> web.Response:
    return web.json_response({"message": text}, status=status)
