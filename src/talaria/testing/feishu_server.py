"""A strict Feishu on loopback: its API, tenant tokens, uploads, and encrypted and signed events."""

import asyncio
import base64
import hashlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from msgspec import Struct

from talaria.core.ids import new_id
from talaria.testing.far_side import FailureKind, Post, WebhookSender, serve_application

BOT = "ou_bot00000000000000000000000000000"
_MOST_CARD, _MOST_UUID = 30 * 1024, 50
_KINDS = {"text", "interactive", "image", "file"}


class FeishuKeys(Struct, frozen=True):
    """Credentials of an app."""

    app_id: str
    secret: str
    encrypt_key: str
    token: str


class FeishuServer:
    """Chats by id, ``p2p`` or ``group``, and the messages that the bot has posted there.

    ``tunnel`` is the address to which events for the public one are forwarded.
    """

    def __init__(self, keys: FeishuKeys, people: Mapping[str, str], chats: Mapping[str, str]) -> None:
        self.keys = keys
        self.people = people
        self.chats = chats
        self.url = ""
        self.tunnel = ""
        self.failure: FailureKind | None = None
        self.sent: list[dict[str, Any]] = []
        self.uploads: dict[str, str] = {}  # names by key
        self.sender = WebhookSender(self._make_post, lambda: self.tunnel)
        self._files: dict[str, tuple[str, bytes]] = {}
        self._messages: dict[str, str] = {}  # chats by the ids of all messages
        self._accepted: dict[str, dict[str, Any]] = {}
        self._tokens: dict[str, float] = {}
        self._transports: set[asyncio.BaseTransport] = set()

    def start_thread(self, chat: str) -> str:
        """Let a person write a message without the bot, and return its id."""
        message_id = f"om_{new_id()}"
        self._messages[message_id] = chat
        return message_id

    def say(self, chat: str, user: str, kind: str, content: Mapping[str, Any], **fields: Any) -> str:
        """Let a person write a message, and return its id; ``root_id`` puts it into a thread."""
        message_id = self.start_thread(chat)
        thread = {"thread_id": f"omt_{fields['root_id'][3:]}"} if fields.get("root_id") else {}
        message = {
            "message_id": message_id,
            "chat_id": chat,
            "chat_type": self.chats[chat],
            "message_type": kind,
            "content": msgspec.json.encode(content).decode(),
            "create_time": str(int(time.time() * 1000)),
            **thread,
            **fields,
        }
        sender = {"sender_id": {"open_id": user}, "sender_type": "user", "tenant_key": "tenant"}
        self._add("im.message.receive_v1", {"sender": sender, "message": message})
        return message_id

    def mention(self, text: str) -> tuple[dict[str, str], dict[str, Any]]:
        """Return content and fields of a text that mentions the bot."""
        mention = {"key": "@_user_1", "id": {"open_id": BOT}, "name": "Winged"}
        return {"text": f"@_user_1 {text}"}, {"mentions": [mention]}

    def send_file(self, chat: str, user: str, name: str, data: bytes) -> None:
        """Let a person send a file."""
        key = f"file_{new_id()}"
        message_id = self.say(chat, user, "file", {"file_key": key, "file_name": name})
        self._files[f"{message_id}/{key}"] = ("file", data)

    def press(self, message_id: str, user: str, label: str) -> None:
        """Let a person press a button."""
        message = next(one for one in self.sent if one["message_id"] == message_id)
        button = next(one for one in read_buttons(message) if one["text"]["content"] == label)
        context = {"open_message_id": message_id, "open_chat_id": message["chat_id"]}
        action = {"value": button["value"], "tag": "button"}
        self._add("card.action.trigger", {"operator": {"open_id": user}, "action": action, "context": context})

    def encrypt(self, content: Mapping[str, Any]) -> bytes:
        """Return the body of a post with this content."""
        padder = PKCS7(128).padder()
        data = padder.update(msgspec.json.encode(content)) + padder.finalize()
        start = os.urandom(16)
        key = hashlib.sha256(self.keys.encrypt_key.encode()).digest()
        encryptor = Cipher(algorithms.AES(key), modes.CBC(start)).encryptor()
        encrypted = start + encryptor.update(data) + encryptor.finalize()
        return msgspec.json.encode({"encrypt": base64.b64encode(encrypted).decode()})

    def sign(self, body: bytes, at: float | None = None) -> dict[str, str]:
        """Return the headers of a post."""
        timestamp, nonce = str(int(at or time.time())), new_id()
        signed = f"{timestamp}{nonce}{self.keys.encrypt_key}".encode() + body
        head = {"x-lark-request-timestamp": timestamp, "x-lark-request-nonce": nonce}
        return {**head, "x-lark-signature": hashlib.sha256(signed).hexdigest(), "content-type": "application/json"}

    def forget_tokens(self) -> None:
        """Refuse all tokens that were given out."""
        self._tokens.clear()

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        api = "/open-apis"
        application = web.Application(middlewares=[self._watch])
        application.add_routes(
            [
                web.post(f"{api}/auth/v3/tenant_access_token/internal", self._grant),
                web.get(f"{api}/bot/v3/info", self._show_bot),
                web.get(f"{api}/contact/v3/users/{{user}}", self._show_user),
                web.post(f"{api}/im/v1/messages", self._create),
                web.post(f"{api}/im/v1/messages/{{id}}/reply", self._reply),
                web.patch(f"{api}/im/v1/messages/{{id}}", self._edit_message),
                web.get(f"{api}/im/v1/messages/{{id}}/resources/{{key}}", self._download_resource),
                web.post(f"{api}/im/v1/images", self._upload),
                web.post(f"{api}/im/v1/files", self._upload),
            ]
        )
        return application

    def _add(self, kind: str, event: Mapping[str, Any]) -> None:
        header = {"event_id": new_id(), "event_type": kind, "create_time": str(int(time.time() * 1000))}
        self.sender.add(
            {
                "schema": "2.0",
                "header": {**header, "token": self.keys.token, "app_id": self.keys.app_id, "tenant_key": "tenant"},
                "event": event,
            }
        )

    def _make_post(self, item: object, is_again: bool) -> Post:
        assert isinstance(item, dict)
        body = self.encrypt(item)
        return body, self.sign(body)

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        if "/auth/" not in request.path:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self.failure == "revoked" or self._tokens.get(token, 0) < time.time():
                return _refuse(400, 99991663, "Invalid access token for authorization.")
        response: web.StreamResponse = await handler(request)
        return response

    async def _grant(self, request: web.Request) -> web.StreamResponse:
        if await request.json() != {"app_id": self.keys.app_id, "app_secret": self.keys.secret}:
            return _refuse(200, 10014, "app secret invalid")
        if self.failure == "revoked":
            return _refuse(200, 10014, "app secret invalid")
        token = f"t-{new_id()}"
        self._tokens[token] = time.time() + 7200
        return web.json_response({"code": 0, "msg": "ok", "tenant_access_token": token, "expire": 7200})

    async def _show_bot(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": 0, "msg": "ok", "bot": {"open_id": BOT, "app_name": "Winged"}})

    async def _show_user(self, request: web.Request) -> web.StreamResponse:
        name = self.people.get(request.match_info["user"])
        if name is None or request.query.get("user_id_type") != "open_id":
            return _refuse(400, 41050, "no user authority error")
        return _succeed({"user": {"name": name}})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        chat = body.pop("receive_id", "")
        if request.query.get("receive_id_type") != "chat_id" or chat not in self.chats:
            return _refuse(400, 230001, "invalid receive_id")
        return await self._accept(chat, "", body)

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        root, body = request.match_info["id"], await request.json()
        if root not in self._messages:
            return _refuse(400, 230011, "The message is recalled.")
        in_thread = body.pop("reply_in_thread", False)
        return await self._accept(self._messages[root], root if in_thread else "", body)

    async def _accept(self, chat: str, root: str, body: dict[str, Any]) -> web.StreamResponse:
        key = body.pop("uuid", "")
        if body.keys() != {"msg_type", "content"} or body["msg_type"] not in _KINDS or len(key) > _MOST_UUID:
            return _refuse(400, 9499, "Bad Request")
        if refusal := self._find_problem(body["msg_type"], body["content"]):
            return refusal
        if key and key in self._accepted:
            return _succeed(self._accepted[key])
        match self.failure:
            case "slow_down":
                return _refuse(400, 230020, "This operation triggers the frequency limit.")
            case "failing":
                return _refuse(500, 2200, "Internal Error")
            case "silent":
                await asyncio.Event().wait()
        message = {"message_id": f"om_{new_id()}", "chat_id": chat, "root_id": root, **body}
        self._messages[message["message_id"]] = chat
        self._accepted[key] = message
        self.sent.append(message)
        return _succeed(message)

    async def _edit_message(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        message = next((one for one in self.sent if one["message_id"] == request.match_info["id"]), None)
        if message is None or message["msg_type"] != "interactive" or body.keys() != {"content"}:
            return _refuse(400, 230001, "This message is not a card of the bot.")
        if refusal := self._find_problem("interactive", body["content"]):
            return refusal
        message["content"] = body["content"]
        return _succeed({})

    def _find_problem(self, kind: str, text: str) -> web.Response | None:
        content = msgspec.json.decode(text)
        if kind in {"image", "file"}:
            found = self._files.get(content.get(f"{kind}_key", ""))
            return None if found is not None and found[0] == kind else _refuse(400, 230001, "invalid key")
        if kind == "text":
            return None if content["text"].strip() else _refuse(400, 230001, "text is empty")
        if len(text.encode()) > _MOST_CARD:
            return _refuse(400, 230025, "The length of the message content reaches its limit.")
        tags = [element["tag"] for element in content["elements"]]
        is_valid = content["config"] == {"update_multi": True} and set(tags) <= {"markdown", "action"}
        return None if is_valid else _refuse(400, 230099, "Failed to create card content")

    async def _download_resource(self, request: web.Request) -> web.StreamResponse:
        found = self._files.get(f"{request.match_info['id']}/{request.match_info['key']}")
        if found is None or found[0] != request.query.get("type"):
            return _refuse(400, 234003, "File not in msg.")
        return web.Response(body=found[1])

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        kind = "image" if request.path.endswith("/images") else "file"
        file = form.get(kind)
        fields = {"image_type": "message"} if kind == "image" else {"file_type": "stream"}
        if not isinstance(file, web.FileField) or any(form.get(name) != value for name, value in fields.items()):
            return _refuse(400, 234001, "Invalid request param.")
        key = f"{kind}_{new_id()}"
        self._files[key] = (kind, file.file.read())
        self.uploads[key] = str(form.get("file_name", file.filename))
        return _succeed({f"{kind}_key": key})


@asynccontextmanager
async def feishu_server(
    keys: FeishuKeys, people: Mapping[str, str], chats: Mapping[str, str]
) -> AsyncIterator[FeishuServer]:
    """Serve the API on a free port, and deliver events."""
    server = FeishuServer(keys, people, chats)
    async with serve_application(server.application()) as server.url, server.sender.running():
        try:
            yield server
        finally:
            server.hang_up()


def read_buttons(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the buttons of a card, in their order."""
    if message["msg_type"] != "interactive":
        return []
    elements = msgspec.json.decode(message["content"])["elements"]
    return [button for element in elements if element["tag"] == "action" for button in element["actions"]]


def read_text(message: Mapping[str, Any]) -> str:
    """Return the text of a card or text message."""
    content = msgspec.json.decode(message["content"])
    return str(content["elements"][0]["content"]) if "elements" in content else str(content.get("text", ""))


def _succeed(data: Mapping[str, Any]) -> web.Response:
    return web.json_response({"code": 0, "msg": "success", "data": data})


def _refuse(status: int, code: int, text: str) -> web.Response:
    return web.json_response({"code": code, "msg": text}, status=status)
