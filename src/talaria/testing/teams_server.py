"""A strict Microsoft Teams on loopback: Bot Connector, sign-in, signing keys, and posts with signed tokens."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from talaria.core.ids import new_id
from talaria.testing.far_side import FailureKind, JwtIssuer, Post, WebhookSender, serve_application

ISSUER = "https://api.botframework.com"
BOT_NAME = "Winged"
_CARD = "application/vnd.microsoft.card.adaptive"
_PICTURES = {"image/png", "image/jpeg", "image/gif"}
_SCOPE = "https://api.botframework.com/.default"
_MOST_BYTES = 40 * 1024  # of a message in UTF-16
_MOST_ACTIONS = 6
_FIELDS = {"type", "text", "textFormat", "attachments", "from", "recipient", "conversation", "channelId", "serviceUrl"}
_FIELDS |= {"replyToId", "locale", "entities", "inputHint", "importance", "id"}


class TeamsMessage(Struct):
    """A message of the bot; ``conversation`` includes the root of a thread."""

    id: str
    conversation: str
    activity: dict[str, Any]


class TeamsServer:
    """Chats by id, with their kinds, and the messages that the bot has posted there.

    ``tunnel`` is the address to which posts for the public one are forwarded.
    """

    def __init__(self, app_id: str, secret: str, tenant: str, chats: Mapping[str, str]) -> None:
        self.app_id = app_id
        self.secret = secret
        self.tenant = tenant
        self.chats = chats
        self.url = ""
        self.tunnel = ""
        self.failure: FailureKind | None = None
        self.issuer = JwtIssuer({"endorsements": ["msteams", "webchat"]})
        self.sent: list[TeamsMessage] = []
        self.typing: list[str] = []
        self.claims: dict[str, Any] = {}  # replace those of posts
        self.sender = WebhookSender(self._make_post, lambda: self.tunnel)
        self._roots: set[str] = set()
        self._files: dict[str, bytes] = {}
        self._tokens: dict[str, float] = {}
        self._last_id = 1_700_000_000_000
        self._transports: set[asyncio.BaseTransport] = set()

    @property
    def service_url(self) -> str:
        """Return the address of the Bot Connector."""
        return f"{self.url}/emea/"

    def say(self, chat: str, user: str, text: str, **fields: Any) -> str:
        """Let a person write a message, and return its id; ``chat`` may name a thread."""
        message_id = self._make_id()
        kind = self.chats[chat.partition(";")[0]]
        if kind == "channel" and ";messageid=" not in chat:
            chat = f"{chat};messageid={message_id}"
            self._roots.add(chat)
        self.sender.add(self._make_activity("message", chat, user, {"id": message_id, "text": text, **fields}))
        return message_id

    def start_thread(self, channel: str) -> str:
        """Let a person start a thread before the bot is there, and return the id of its first message."""
        message_id = self._make_id()
        self._roots.add(f"{channel};messageid={message_id}")
        return message_id

    def add_bot(self, chat: str, user: str) -> None:
        """Let a person add the bot to a chat."""
        added = {"membersAdded": [{"id": f"28:{self.app_id}"}]}
        self.sender.add(self._make_activity("conversationUpdate", chat, user, {"id": f"f:{new_id()}", **added}))

    def mention(self, text: str) -> dict[str, Any]:
        """Return the fields of a message that mentions the bot before a text."""
        at = f"<at>{BOT_NAME}</at>"
        entity = {"type": "mention", "mentioned": {"id": f"28:{self.app_id}", "name": BOT_NAME}, "text": at}
        return {"text": f"{at}&nbsp;{text}", "entities": [entity]}

    def send_file(self, chat: str, user: str, name: str, data: bytes) -> None:
        """Let a person send a file in a personal chat."""
        file_id = new_id()
        self._files[file_id] = data
        content = {
            "downloadUrl": f"{self.url}/drive/{file_id}",
            "uniqueId": file_id,
            "fileType": name.rpartition(".")[2],
        }
        kind = "application/vnd.microsoft.teams.file.download.info"
        url = f"https://contoso.sharepoint.com/personal/{file_id}"
        self.say(
            chat, user, "", attachments=[{"contentType": kind, "contentUrl": url, "name": name, "content": content}]
        )

    def send_picture(self, chat: str, user: str, data: bytes) -> None:
        """Let a person paste a picture."""
        file_id = new_id()
        self._files[file_id] = data
        url = f"{self.service_url}v3/attachments/{file_id}/views/original"
        html = {"contentType": "text/html", "content": "<div><img></div>"}
        self.say(chat, user, "", attachments=[{"contentType": "image/*", "contentUrl": url}, html])

    def edit(self, chat: str, user: str, message_id: str, text: str) -> None:
        """Let a person edit a message."""
        fields = {"id": message_id, "text": text, "channelData": {"eventType": "editMessage"}}
        self.sender.add(self._make_activity("messageUpdate", chat, user, fields))

    def press(self, message_id: str, user: str, title: str) -> None:
        """Let a person press a button of a card."""
        message = next(one for one in self.sent if one.id == message_id)
        action = next(one for one in read_actions(message.activity) if one["title"] == title)
        fields = {"id": f"f:{new_id()}", "value": action["data"], "replyToId": message_id}
        self.sender.add(self._make_activity("message", message.conversation, user, fields))

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        application = web.Application(middlewares=[self._watch])
        application.add_routes(
            [
                web.get("/v1/.well-known/openidconfiguration", self._show_metadata),
                web.get("/v1/.well-known/keys", self._show_keys),
                web.post("/{tenant}/oauth2/v2.0/token", self._grant),
                web.post("/emea/v3/conversations", self._create),
                web.post("/emea/v3/conversations/{chat}/activities", self._post),
                web.put("/emea/v3/conversations/{chat}/activities/{id}", self._put),
                web.get("/emea/v3/attachments/{id}/views/original", self._download_attachment),
                web.get("/drive/{id}", self._drive),
            ]
        )
        return application

    def _make_id(self) -> str:
        self._last_id += 1
        return str(self._last_id)

    def _make_activity(self, kind: str, chat: str, user: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        channel = chat.partition(";")[0]
        conversation: dict[str, Any] = {"id": chat, "conversationType": self.chats[channel], "tenantId": self.tenant}
        data: dict[str, Any] = {"tenant": {"id": self.tenant}}
        if self.chats[channel] == "channel":
            data |= {"team": {"id": "19:team@thread.tacv2"}, "channel": {"id": channel}}
        elif self.chats[channel] == "groupChat":
            conversation["isGroup"] = True
        return {
            "type": kind,
            "timestamp": datetime.now(UTC).isoformat(),
            "serviceUrl": self.service_url,
            "channelId": "msteams",
            "from": {"id": f"29:{user}", "name": user.title(), "aadObjectId": user},
            "recipient": {"id": f"28:{self.app_id}", "name": BOT_NAME},
            "conversation": conversation,
            **fields,
            "channelData": {**data, **fields.get("channelData", {})},
        }

    def _make_post(self, item: object, is_again: bool) -> Post:
        claims = {"iss": ISSUER, "aud": self.app_id, "serviceurl": self.service_url, **self.claims}
        headers = {"content-type": "application/json; charset=utf-8"}
        return msgspec.json.encode(item), headers | {"authorization": f"Bearer {self.issuer.sign(claims)}"}

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        if request.path.startswith("/emea/"):
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self.failure == "revoked" or self._tokens.get(token, 0) < time.time():
                return _refuse(401, "Unauthorized", "Authorization has been denied for this request.")
        response: web.StreamResponse = await handler(request)
        return response

    async def _show_metadata(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"issuer": ISSUER, "jwks_uri": f"{self.url}/v1/.well-known/keys"})

    async def _show_keys(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response(self.issuer.key_set())

    async def _grant(self, request: web.Request) -> web.StreamResponse:
        form = dict(await request.post())
        expected = {"grant_type": "client_credentials", "client_id": self.app_id, "client_secret": self.secret}
        if request.match_info["tenant"] != self.tenant:
            return web.json_response({"error": "invalid_request", "error_description": "AADSTS90002"}, status=400)
        if form != {**expected, "scope": _SCOPE} or self.failure == "revoked":
            refusal = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
            return web.json_response(refusal, status=401)
        token = new_id()
        self._tokens[token] = time.time() + 3599
        return web.json_response({"token_type": "Bearer", "expires_in": 3599, "access_token": token})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        channel = body.get("channelData", {}).get("channel", {}).get("id", "")
        if self.chats.get(channel) != "channel" or not body.get("isGroup") or "activity" not in body:
            return _refuse(400, "BadSyntax", "Incorrect conversation creation parameters")
        message_id = self._make_id()
        conversation = f"{channel};messageid={message_id}"
        if (refusal := await self._accept(body["activity"], conversation, message_id)) is not None:
            return refusal
        self._roots.add(conversation)
        return web.json_response({"id": conversation, "activityId": message_id}, status=201)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        chat = request.match_info["chat"]
        if not self._is_known(chat):
            return _refuse(404, "ConversationNotFound", "Conversation not found.")
        activity, message_id = await request.json(), self._make_id()
        if activity.get("type") == "typing":
            self.typing.append(chat)
        elif (refusal := await self._accept(activity, chat, message_id)) is not None:
            return refusal
        return web.json_response({"id": message_id}, status=201)

    async def _put(self, request: web.Request) -> web.StreamResponse:
        chat, message_id = request.match_info["chat"], request.match_info["id"]
        message = next((one for one in self.sent if (one.id, one.conversation) == (message_id, chat)), None)
        if message is None:
            return _refuse(404, "ActivityNotFoundInConversation", "The bot can't edit this message.")
        activity = await request.json()
        if refusal := find_problem(activity):
            return refusal
        message.activity = activity
        return web.json_response({"id": message_id})

    async def _accept(self, activity: dict[str, Any], chat: str, message_id: str) -> web.StreamResponse | None:
        """Add a message, or return why that is impossible."""
        if refusal := find_problem(activity):
            return refusal
        match self.failure:
            case "slow_down":
                return _refuse(429, "TooManyRequests", "Too many requests.", {"retry-after": "3"})
            case "failing":
                return _refuse(502, "BadGateway", "Bad gateway.")
            case "silent":
                await asyncio.Event().wait()
        self.sent.append(TeamsMessage(message_id, chat, activity))
        return None

    def _is_known(self, chat: str) -> bool:
        channel, _, root = chat.partition(";")
        return channel in self.chats and (chat in self._roots if root else self.chats[channel] != "channel")

    async def _download_attachment(self, request: web.Request) -> web.StreamResponse:
        return self._download_file(request.match_info["id"])

    async def _drive(self, request: web.Request) -> web.StreamResponse:
        if "authorization" in request.headers:
            return _refuse(401, "unauthenticated", "This link has its own authorization.")
        return self._download_file(request.match_info["id"])

    def _download_file(self, file_id: str) -> web.StreamResponse:
        data = self._files.get(file_id)
        return web.Response(body=data) if data is not None else _refuse(404, "NotFound", "Not found.")


@asynccontextmanager
async def teams_server(app_id: str, secret: str, tenant: str, chats: Mapping[str, str]) -> AsyncIterator[TeamsServer]:
    """Serve everything on a free port, and deliver posts."""
    server = TeamsServer(app_id, secret, tenant, chats)
    async with serve_application(server.application()) as server.url, server.sender.running():
        try:
            yield server
        finally:
            server.hang_up()


def read_actions(activity: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the buttons of a message, in their order."""
    cards = [one["content"] for one in activity.get("attachments") or [] if one["contentType"] == _CARD]
    return [action for card in cards for row in card["body"] if row["type"] == "ActionSet" for action in row["actions"]]


def find_problem(activity: Mapping[str, Any]) -> web.Response | None:
    """Return the refusal of an invalid message."""
    size = len(msgspec.json.encode(activity).decode().encode("utf-16-le"))
    if size > _MOST_BYTES:
        return _refuse(413, "MessageSizeTooBig", f"Message size too large: {size} bytes.")
    unknown = activity.keys() - _FIELDS
    attachments = activity.get("attachments") or []
    if unknown or activity.get("type") != "message" or activity.get("textFormat", "markdown") not in _FORMATS:
        return _refuse(400, "BadSyntax", f"Bad format of the activity: {unknown}")
    if not activity.get("text", "").strip() and not attachments:
        return _refuse(400, "BadSyntax", "Activity must have text or attachments.")
    if not all(map(_is_valid_attachment, attachments)):
        return _refuse(400, "BadSyntax", "Unknown attachment type or invalid card.")
    return None


_FORMATS = {"markdown", "plain", "xml"}


def _is_valid_attachment(attachment: Mapping[str, Any]) -> bool:
    if attachment.get("contentType") in _PICTURES:
        return str(attachment.get("contentUrl", "")).startswith("https://")
    card = attachment.get("content", {})
    if attachment.get("contentType") != _CARD or (card.get("type"), card.get("version")) != ("AdaptiveCard", "1.4"):
        return False
    rows = [row for row in card.get("body", []) if row.get("type") == "ActionSet"]
    return all(len(row["actions"]) <= _MOST_ACTIONS and all(map(_is_valid_action, row["actions"])) for row in rows)


def _is_valid_action(action: Mapping[str, Any]) -> bool:
    return action.get("type") == "Action.Submit" and bool(action.get("title")) and isinstance(action.get("data"), dict)


def _refuse(status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"code": code, "message": text}}, status=status, headers=headers)
