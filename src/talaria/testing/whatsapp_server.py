"""A strict WhatsApp Cloud API on loopback (Graph API v25.0): messages, templates, media, and signed webhooks."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from talaria.platforms.signatures import sign
from talaria.testing.far_side import FailureKind, Post, WebhookSender

NUMBER_ID, VERSION = "106540352242922", "v25.0"
_DAY = 24 * 3600
_MEGABYTE = 1024 * 1024
_LIMITS = {"image": 5 * _MEGABYTE, "video": 16 * _MEGABYTE, "audio": 16 * _MEGABYTE, "document": 100 * _MEGABYTE}
_TYPES = {
    **dict.fromkeys(("image/jpeg", "image/png"), "image"),
    **dict.fromkeys(("audio/ogg", "audio/mpeg"), "audio"),
    **dict.fromkeys(("text/plain", "application/pdf"), "document"),
    "video/mp4": "video",
}
_COMMON = {"messaging_product", "recipient_type", "to", "recipient", "type", "context"}


class _Refused(Exception):
    def __init__(self, code: int, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code = code
        self.status = status


class WhatsAppServer:
    """One business number, and people by phone number with their names and business-scoped ids.

    ``tunnel`` is the address to which webhooks are forwarded. People without a visible phone number are in ``hidden``.
    ``last_heard`` is when each person last wrote, in seconds since 1970. ``templates`` are names and languages.
    """

    def __init__(self, token: str, app_secret: str, people: Mapping[str, tuple[str, str]]) -> None:
        self.token = token
        self.app_secret = app_secret
        self.people = people
        self.url = ""
        self.tunnel = ""
        self.hidden: set[str] = set()
        self.last_heard: dict[str, float] = {}
        self.templates: set[tuple[str, str]] = set()
        self.failure: FailureKind | None = None
        self.error: tuple[int, int] | None = None  # status and code of the answer to the next message
        self.sent: list[dict[str, Any]] = []
        self.reactions: dict[str, str] = {}
        self.read: list[str] = []
        self.typing: list[str] = []
        self.webhooks = WebhookSender(self._make_post, lambda: self.tunnel)
        self.media: dict[str, tuple[str, bytes]] = {}
        self.known: set[str] = set()
        self._transports: set[asyncio.BaseTransport] = set()

    def say(self, phone: str, *messages: Mapping[str, Any]) -> list[str]:
        """Let a person send messages, which arrive in one post, and return their ids."""
        name, user_id = self.people[phone]
        contact: dict[str, Any] = {"profile": {"name": name}, "user_id": user_id}
        origin = {"from_user_id": user_id}
        if phone not in self.hidden:
            contact["wa_id"] = origin["from"] = phone
        given = [{**origin, "id": _make_wamid(), "timestamp": str(int(time.time())), **message} for message in messages]
        self.known |= {one["id"] for one in given}
        self.last_heard[phone] = time.time()
        self.webhooks.add({"contacts": [contact], "messages": given})
        return [one["id"] for one in given]

    def write(self, phone: str, text: str) -> str:
        """Let a person write a text, and return its id."""
        return self.say(phone, {"type": "text", "text": {"body": text}})[0]

    def send_media(self, phone: str, kind: str, data: bytes, **fields: str) -> None:
        """Let a person send a file."""
        media_id = _make_number()
        self.media[media_id] = (fields.get("mime_type", "application/octet-stream"), data)
        self.say(phone, {"type": kind, kind: {"id": media_id, **fields}})

    def report(self, message_id: str, phone: str, status: str, code: int = 0) -> None:
        """Report what became of a message."""
        given: dict[str, Any] = {"id": message_id, "status": status, "timestamp": "1739321024", "recipient_id": phone}
        if code:
            given["errors"] = [{"code": code, "title": "Re-engagement message"}]
        self.webhooks.add({"statuses": [given]})

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        application = web.Application(middlewares=[self._guard], client_max_size=110 * _MEGABYTE)
        application.add_routes(
            [
                web.get(f"/{VERSION}/{NUMBER_ID}", self._show_number),
                web.post(f"/{VERSION}/{NUMBER_ID}/messages", self._handle_message),
                web.post(f"/{VERSION}/{NUMBER_ID}/media", self._upload),
                web.get(f"/{VERSION}/{{media:[0-9]+}}", self._locate),
                web.get("/lookaside/{media}", self._download),
            ]
        )
        return application

    def _make_post(self, item: object, _is_again: bool) -> Post:
        assert isinstance(item, dict)
        metadata = {"display_phone_number": "15550783881", "phone_number_id": NUMBER_ID}
        value = {"messaging_product": "whatsapp", "metadata": metadata, **item}
        entry = {"id": "102290129340398", "changes": [{"field": "messages", "value": value}]}
        body = msgspec.json.encode({"object": "whatsapp_business_account", "entry": [entry]})
        signature = f"sha256={sign(self.app_secret, body).hex()}"
        return body, {"content-type": "application/json", "x-hub-signature-256": signature}

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        if self.failure == "revoked" or request.headers.get("authorization") != f"Bearer {self.token}":
            return _refuse(_Refused(190, "Invalid OAuth access token", 401))
        try:
            response: web.StreamResponse = await handler(request)
        except _Refused as error:
            return _refuse(error)
        return response

    async def _show_number(self, _request: web.Request) -> web.StreamResponse:
        found = {"id": NUMBER_ID, "display_phone_number": "+1 555-078-3881", "verified_name": "Winged"}
        return web.json_response(found)

    async def _handle_message(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        if body.get("messaging_product") != "whatsapp":
            raise _Refused(100, "messaging_product is required")
        if "status" in body:
            return self._take_status(body)
        phone = self._find_recipient(body)
        self._check(body, phone)
        if self.error is not None:
            status, code = self.error
            raise _Refused(code, "as told", status)
        match self.failure:
            case "slow_down":
                raise _Refused(130429, "Rate limit hit")
            case "failing":
                raise _Refused(131016, "Service unavailable", 500)
            case "silent":
                await asyncio.Event().wait()
        message_id = _make_wamid()
        self.known.add(message_id)
        if body["type"] == "reaction":
            self.reactions[body["reaction"]["message_id"]] = body["reaction"]["emoji"]
        else:
            self.sent.append({"id": message_id, "phone": phone, **body})
        contact = {"input": body.get("to") or body["recipient"], "wa_id": phone, "user_id": self.people[phone][1]}
        return web.json_response(
            {"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": message_id}]}
        )

    def _take_status(self, body: Mapping[str, Any]) -> web.StreamResponse:
        allowed = {"messaging_product", "status", "message_id", "typing_indicator"}
        if body.keys() - allowed or body["status"] != "read" or body["message_id"] not in self.known:
            raise _Refused(100, "Invalid parameter")
        if body.get("typing_indicator", {"type": "text"}) != {"type": "text"}:
            raise _Refused(100, "Invalid typing indicator")
        self.read.append(body["message_id"])
        if "typing_indicator" in body:
            self.typing.append(body["message_id"])
        return web.json_response({"success": True})

    def _find_recipient(self, body: Mapping[str, Any]) -> str:
        if body.get("recipient_type") != "individual" or ("to" in body) == ("recipient" in body):
            raise _Refused(100, "Invalid recipient")
        recipient = body.get("to", body.get("recipient"))
        found = [
            phone for phone, (_, user_id) in self.people.items() if recipient == (phone if "to" in body else user_id)
        ]
        if not found:
            raise _Refused(131026, "Message undeliverable")
        return found[0]

    def _check(self, body: Mapping[str, Any], phone: str) -> None:
        kind = body.get("type", "")
        if body.keys() != {*(body.keys() & _COMMON), kind}:
            raise _Refused(100, f"Unexpected key on the message: {sorted(body)}")
        if "context" in body and body["context"].get("message_id") not in self.known:
            raise _Refused(131009, "The message of the context is unknown")
        if kind != "template" and time.time() - self.last_heard.get(phone, 0) > _DAY:
            raise _Refused(131047, "Re-engagement message")
        check = {
            "text": _check_text,
            "interactive": _check_interactive,
            "template": self._check_template,
            "reaction": self._check_reaction,
        }.get(kind, self._check_media)
        check(body[kind])

    def _check_template(self, template: Mapping[str, Any]) -> None:
        if (template["name"], template["language"]["code"]) not in self.templates:
            raise _Refused(132001, "Template name does not exist in the translation")
        _expect_keys(template, {"name", "language", "components"})
        (component,) = template["components"]
        (parameter,) = component["parameters"]
        if component["type"] != "body" or not 1 <= len(parameter["text"]) <= 1024 - len("News: ."):
            raise _Refused(132005, "Template hydrated text too long")
        if re.search(r"[\n\t]| {5}", parameter["text"]):
            raise _Refused(132018, "Parameters have no line breaks, tabs or more than four spaces")

    def _check_reaction(self, reaction: Mapping[str, Any]) -> None:
        _expect_keys(reaction, {"message_id", "emoji"})
        if reaction["message_id"] not in self.known:
            raise _Refused(131009, "Parameter value is not valid")

    def _check_media(self, media: Mapping[str, Any]) -> None:
        _expect_keys(media, {"id", "caption", "filename"})
        if media["id"] not in self.media or len(media.get("caption", "")) > 1024:
            raise _Refused(131053, "Media upload error")

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file = form["file"]
        if not isinstance(file, web.FileField) or form.get("messaging_product") != "whatsapp":
            raise _Refused(100, "file and messaging_product are required")
        data, kind = file.file.read(), _TYPES.get(file.content_type, "")
        if not kind or form.get("type") != file.content_type:
            raise _Refused(100, f"Param file must be a file with one of the known types, not {file.content_type}")
        if len(data) > _LIMITS[kind]:
            raise _Refused(131053, "The file is too large")
        media_id = _make_number()
        self.media[media_id] = (file.content_type, data)
        return web.json_response({"id": media_id})

    async def _locate(self, request: web.Request) -> web.StreamResponse:
        media_id = request.match_info["media"]
        if media_id not in self.media or request.query.get("phone_number_id", NUMBER_ID) != NUMBER_ID:
            raise _Refused(100, "Unsupported get request: the object does not exist")
        media_type, data = self.media[media_id]
        found = {"url": f"{self.url}/lookaside/{media_id}", "mime_type": media_type, "file_size": len(data)}
        return web.json_response({"messaging_product": "whatsapp", "id": media_id, **found})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if not request.headers.get("user-agent"):
            raise _Refused(100, "A user agent is required")
        return web.Response(body=self.media[request.match_info["media"]][1])


def _check_text(text: Mapping[str, Any]) -> None:
    _expect_keys(text, {"body", "preview_url"})
    if not text["body"].strip() or len(text["body"]) > 4096:
        raise _Refused(100, "Param text['body'] must be at most 4096 characters long")


def _check_interactive(given: Mapping[str, Any]) -> None:
    _expect_keys(given, {"type", "body", "action"})
    action, is_list = given["action"], given["type"] == "list"
    options: Sequence[Mapping[str, str]]
    if is_list:
        options = [row for section in action["sections"] for row in section["rows"]]
        is_wrong = len(action["button"]) > 20 or any(len(one.get("description", "")) > 72 for one in options)
    else:
        options = [one["reply"] for one in action["buttons"]]
        is_wrong = any(one["type"] != "reply" for one in action["buttons"])
    most, title, identifier, text = (10, 24, 200, 4096) if is_list else (3, 20, 256, 1024)
    titles, ids = [one["title"] for one in options], [one["id"] for one in options]
    is_wrong |= (
        not 1 <= len(options) <= most or len(set(ids)) < len(ids) or (not is_list and len(set(titles)) < len(titles))
    )
    is_wrong |= any(not 1 <= len(one) <= title for one in titles) or any(not 1 <= len(one) <= identifier for one in ids)
    if is_wrong or not 1 <= len(given["body"]["text"]) <= text:
        raise _Refused(131009, "Parameter value is not valid")


def _expect_keys(given: Mapping[str, Any], allowed: set[str]) -> None:
    if given.keys() - allowed:
        raise _Refused(100, f"Unexpected key: {sorted(given.keys() - allowed)}")


@asynccontextmanager
async def whatsapp_server(
    token: str, app_secret: str, people: Mapping[str, tuple[str, str]]
) -> AsyncIterator[WhatsAppServer]:
    """Serve the API on a free port, and deliver webhooks."""
    server = WhatsAppServer(token, app_secret, people)
    runner = web.AppRunner(server.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with server.webhooks.running():
            yield server
    finally:
        server.hang_up()
        await runner.cleanup()


def _make_wamid() -> str:
    return f"wamid.{secrets.token_hex(24).upper()}"


def _make_number() -> str:
    return str(10**15 + secrets.randbelow(10**15))


def _refuse(error: _Refused) -> web.Response:
    given = {"message": f"(#{error.code}) {error}", "type": "OAuthException", "code": error.code, "fbtrace_id": "A1"}
    return web.json_response({"error": given}, status=error.status)
