"""A strict Google Chat on loopback: its API, the token exchange, signing keys, and events with signed tokens."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import msgspec
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from talaria.core.ids import new_id
from talaria.testing.far_side import FailureKind, JwtIssuer, Post, WebhookSender, make_rsa_key, serve_application

CHAT_ACCOUNT = "chat@system.gserviceaccount.com"
ACCOUNT = "talaria@project.iam.gserviceaccount.com"
BOT = {"name": "users/1000000000000000001", "displayName": "Winged", "type": "BOT"}
_SCOPE = "https://www.googleapis.com/auth/chat.bot"
_TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 (an address, not a secret)
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ACCOUNT_KEY = 1000  # the number of the service account's key; issuers count from 0
_MOST_BYTES = 32_000
_REPLY_OPTIONS = {"REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD", "REPLY_MESSAGE_OR_FAIL"}


class GoogleChatServer:
    """Spaces by id, with their types, and the messages that the app has posted there.

    ``tunnel`` is the address to which events for the public one are forwarded.
    """

    def __init__(self, audience: str, spaces: Mapping[str, str]) -> None:
        self.spaces = spaces
        self.url = ""
        self.tunnel = ""
        self.failure: FailureKind | None = None
        self.issuer = JwtIssuer()
        self.claims: dict[str, Any] = {"iss": CHAT_ACCOUNT, "aud": audience}
        self.sent: list[dict[str, Any]] = []
        self.sender = WebhookSender(self._make_post, lambda: self.tunnel)
        self._requests: dict[str, dict[str, Any]] = {}
        self._threads: set[str] = set()
        self._files: dict[str, bytes] = {}
        self._tokens: dict[str, float] = {}
        self._transports: set[asyncio.BaseTransport] = set()

    def write_key_file(self, path: Path) -> None:
        """Write the key file of the app's service account."""
        pem = make_rsa_key(_ACCOUNT_KEY).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {"type": "service_account", "client_email": ACCOUNT, "private_key_id": "account-key"}
        path.write_text(json.dumps({**account, "private_key": pem.decode(), "token_uri": f"{self.url}/token"}))

    def start_thread(self, space: str) -> str:
        """Let a person start a thread without the app, and return its id."""
        thread = new_id()
        self._threads.add(f"spaces/{space}/threads/{thread}")
        return thread

    def say(self, space: str, user: str, text: str, *, thread: str = "", **fields: Any) -> str:
        """Let a person write a message, and return its id."""
        message = self._make_message(space, thread, {"text": text, "argumentText": text, **fields})
        message["sender"] = _make_person(user)
        self.sender.add(self._make_event("MESSAGE", space, user, {"message": message}))
        return str(message["name"]).rpartition("/")[2]

    def mention(self, text: str) -> dict[str, Any]:
        """Return the fields of a message that mentions the app before a text."""
        mention = {"type": "MENTION", "user": BOT}
        annotation = {"type": "USER_MENTION", "startIndex": 0, "length": 7, "userMention": mention}
        return {"text": f"@Winged {text}", "argumentText": f" {text}", "annotations": [annotation]}

    def command(self, space: str, user: str, name: str, arguments: str) -> None:
        """Let a person use a registered slash command."""
        fields: dict[str, Any] = {"argumentText": f" {arguments}", "slashCommand": {"commandId": "1"}}
        self.say(space, user, f"/{name} {arguments}", **fields)

    def send_file(self, space: str, user: str, name: str, data: bytes) -> None:
        """Let a person upload a file."""
        resource = f"ClxzcGFjZXM{new_id()}=="
        self._files[resource] = data
        file = {"contentName": name, "contentType": "application/octet-stream", "source": "UPLOADED_CONTENT"}
        self.say(space, user, "", attachment=[{**file, "attachmentDataRef": {"resourceName": resource}}])

    def press(self, message_id: str, user: str, label: str) -> None:
        """Let a person press a button."""
        message = next(one for one in self.sent if one["name"].endswith(f"/{message_id}"))
        button = next(one for one in read_buttons(message) if one["text"] == label)
        action = button["onClick"]["action"]
        fields = {"message": message, "action": {"actionMethodName": action["function"], **_make_parameters(action)}}
        self.sender.add(self._make_event("CARD_CLICKED", message["name"].split("/")[1], user, fields))

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        application = web.Application(middlewares=[self._watch])
        application.add_routes(
            [
                web.get("/keys", self._show_keys),
                web.post("/token", self._grant),
                web.post("/v1/spaces/{space}/messages", self._create),
                web.patch("/v1/spaces/{space}/messages/{id}", self._edit_message),
                web.get("/v1/media/{resource}", self._download_media),
            ]
        )
        return application

    def _make_message(self, space: str, thread: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        name = f"spaces/{space}/threads/{thread or new_id()}"
        self._threads.add(name)
        names = {"name": f"spaces/{space}/messages/{new_id()}.{new_id()}", "thread": {"name": name}}
        return {**fields, **names, "createTime": datetime.now(UTC).isoformat(), "space": self._make_space(space)}

    def _make_space(self, space: str) -> dict[str, Any]:
        kind = self.spaces[space]
        state = "THREADED_MESSAGES" if kind == "SPACE" else "UNTHREADED_MESSAGES"
        return {"name": f"spaces/{space}", "spaceType": kind, "spaceThreadingState": state}

    def _make_event(self, kind: str, space: str, user: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        common = {"type": kind, "eventTime": datetime.now(UTC).isoformat(), "user": _make_person(user)}
        return {**common, "space": self._make_space(space), **fields}

    def _make_post(self, item: object, is_again: bool) -> Post:
        headers = {"content-type": "application/json", "user-agent": "Google-Dynamite"}
        return msgspec.json.encode(item), headers | {"authorization": f"Bearer {self.issuer.sign(self.claims)}"}

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        if request.path.startswith("/v1/"):
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self.failure == "revoked" or self._tokens.get(token, 0) < time.time():
                return _refuse(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        response: web.StreamResponse = await handler(request)
        return response

    async def _show_keys(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response(self.issuer.key_set())

    async def _grant(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        try:
            claims = jwt.decode(
                str(form["assertion"]),
                make_rsa_key(_ACCOUNT_KEY).public_key(),
                algorithms=["RS256"],
                audience=[f"{self.url}/token", _TOKEN_URL],
                issuer=ACCOUNT,
            )
        except jwt.PyJWTError:
            claims = {}
        is_right = (claims.get("scope"), form.get("grant_type")) == (_SCOPE, _JWT_GRANT)
        if not is_right or self.failure == "revoked":
            refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
            return web.json_response(refusal, status=400)
        token = new_id()
        self._tokens[token] = time.time() + 3599
        return web.json_response({"access_token": token, "expires_in": 3599, "token_type": "Bearer"})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        space, body, request_id = request.match_info["space"], await request.json(), request.query.get("requestId", "")
        if space not in self.spaces:
            return _refuse(404, "NOT_FOUND", "Space not found.")
        if refusal := _find_problem(body, {"text", "cardsV2", "thread"}):
            return refusal
        if request_id and request_id in self._requests:
            return web.json_response(self._requests[request_id])
        match self.failure:
            case "slow_down":
                return _refuse(429, "RESOURCE_EXHAUSTED", "Quota exceeded.")
            case "failing":
                return _refuse(503, "UNAVAILABLE", "The service is currently unavailable.")
            case "silent":
                await asyncio.Event().wait()
        thread, option = body.pop("thread", {}).get("name", ""), request.query.get("messageReplyOption", "")
        if thread not in self._threads or option not in _REPLY_OPTIONS:
            thread = ""  # starts a new one, as Google Chat does without the option
        message = self._make_message(space, thread.rpartition("/")[2], {**body, "sender": BOT})
        self._requests[request_id] = message
        self.sent.append(message)
        return web.json_response(message)

    async def _edit_message(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/v1/")
        message = next((one for one in self.sent if one["name"] == name), None)
        body, mask = await request.json(), request.query.get("updateMask", "").split(",")
        if message is None:
            return _refuse(404, "NOT_FOUND", "Message not found.")
        if refusal := _find_problem(body, {"text", "cardsV2"}):
            return refusal
        if not set(mask) <= {"text", "cardsV2"}:
            return _refuse(400, "INVALID_ARGUMENT", "Invalid update mask.")
        message.update({field: body.get(field, "" if field == "text" else []) for field in mask})
        return web.json_response(message)

    async def _download_media(self, request: web.Request) -> web.StreamResponse:
        data = self._files.get(request.match_info["resource"])
        if data is None or request.query.get("alt") != "media":
            return _refuse(404, "NOT_FOUND", "Media not found.")
        return web.Response(body=data)


@asynccontextmanager
async def googlechat_server(audience: str, spaces: Mapping[str, str]) -> AsyncIterator[GoogleChatServer]:
    """Serve everything on a free port, and deliver events."""
    server = GoogleChatServer(audience, spaces)
    async with serve_application(server.application()) as server.url, server.sender.running():
        try:
            yield server
        finally:
            server.hang_up()


def read_buttons(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the buttons of a message, in their order."""
    return [
        button
        for card in message.get("cardsV2", [])
        for section in card["card"]["sections"]
        for widget in section["widgets"]
        for button in widget.get("buttonList", {}).get("buttons", [])
    ]


def _make_person(user: str) -> dict[str, Any]:
    return {"name": f"users/{user}", "displayName": user.title(), "type": "HUMAN"}


def _make_parameters(action: Mapping[str, Any]) -> dict[str, Any]:
    return {"parameters": action.get("parameters", [])}


def _find_problem(message: Mapping[str, Any], fields: set[str]) -> web.Response | None:
    """Return the refusal of an invalid message."""
    if unknown := message.keys() - fields:
        return _refuse(400, "INVALID_ARGUMENT", f"Unknown name {unknown}")
    if len(msgspec.json.encode(message)) > _MOST_BYTES:
        return _refuse(400, "INVALID_ARGUMENT", "Message is too long.")
    if not message.get("text", "").strip() and not message.get("cardsV2"):
        return _refuse(400, "INVALID_ARGUMENT", "Message cannot be empty.")
    widgets = [
        widget
        for card in message.get("cardsV2", [])
        for section in card["card"]["sections"]
        for widget in section["widgets"]
    ]
    return None if all(map(_is_valid_widget, widgets)) else _refuse(400, "INVALID_ARGUMENT", "Invalid card.")


def _is_valid_widget(widget: Mapping[str, Any]) -> bool:
    if widget.keys() == {"image"}:
        return bool(re.fullmatch(r"https://\S+", widget["image"].get("imageUrl", "")))
    buttons = widget.get("buttonList", {}).get("buttons", [])
    return widget.keys() == {"buttonList"} and all(one.keys() == {"text", "onClick"} and one["text"] for one in buttons)


def _refuse(status: int, code: str, text: str) -> web.Response:
    return web.json_response({"error": {"code": status, "message": text, "status": code}}, status=status)
