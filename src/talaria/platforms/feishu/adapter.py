"""The Feishu and Lark adapter: receives encrypted events, posts and edits cards, and exchanges files."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import msgspec

from talaria.contracts.platform import (
    Attachment,
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    PlatformDefaults,
    Rate,
    Rates,
    Sender,
)
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, Refused, Rejected, Unreachable
from talaria.core.messages import File, Image
from talaria.http_client.connection import FormFile, encode_form
from talaria.platforms.content import sanitize_text, save_file
from talaria.platforms.feishu.settings import FeishuSettings, read_settings
from talaria.platforms.feishu.setup import SECRETS
from talaria.platforms.feishu.wire import (
    TEXT_LIMIT,
    FeishuAnswer,
    author_of,
    check_post,
    check_text,
    check_token,
    decrypt_body,
    is_expired,
    make_card,
    make_key,
    read_answer,
    read_event,
    to_error,
    to_incoming,
)
from talaria.platforms.http_api import HttpApi, require_file
from talaria.platforms.push_receiver import PushRequest, PushResponse
from talaria.platforms.webhook_endpoint import WebhookEndpoint

log = logging.getLogger(__name__)

_PICTURES = {".jpg", ".jpeg", ".png", ".webp", ".gif"}
_LARGEST_PICTURE = 10 * 1024 * 1024
_MOST_NAMES = 1000
_THREAD_NAME = 200
_JSON = {"content-type": "application/json; charset=utf-8"}
_ACCEPTED = PushResponse(200, b"{}", "application/json")


class Feishu(PlatformDefaults):
    """One bot; the creator closes it."""

    def __init__(self, settings: FeishuSettings) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            text_unit="bytes",
            replies=False,
            edits=True,
            buttons=True,
            threads=True,
            servers=True,
            idempotent=True,
            exclusive=True,
            file_limit=settings.file_limit,
            rates=Rates(network=Rate(50, 50), chat=Rate(5, 5), group=Rate(5, 5)),
        )
        self._settings = settings
        self._api = HttpApi("Feishu", to_error, settings.token_request, settings.patience, is_expired=is_expired)
        self._endpoint = WebhookEndpoint(
            settings.endpoint, self._verify, self._parse, handshake=self._answer_challenge, accepted=_ACCEPTED
        )
        self._bot_id = ""
        self._names: OrderedDict[str, str] = OrderedDict()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, and let Feishu call; it repeats for some hours what it can't deliver."""
        found = await self._call("GET", "/bot/v3/info")
        if found.bot is None:
            raise Unreachable("Feishu doesn't say who the bot is")
        self._bot_id = found.bot.open_id
        async with self._endpoint.connect() as updates:
            yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a card, then each file as a message of its own."""
        text = check_text(content.text, with_files=bool(content.files))
        paths = [require_file(file, self._settings.file_limit) for file in content.files]
        sent: list[str] = []
        if text or content.buttons:
            card = make_card(to, text or " ", content.buttons)
            sent.append(await self._post(to, "interactive", card, make_key(to, key, 0)))
        for number, (file, path) in enumerate(zip(content.files, paths, strict=True), 1):
            kind, uploaded = await self._upload(file, path)
            sent.append(await self._post(to, kind, uploaded, make_key(to, key, number)))
        return MessageRef(to, sent[0])

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a card and its buttons."""
        card = make_card(ref.address, check_text(content.text), content.buttons)
        body = msgspec.json.encode({"content": card})
        await self._call("PATCH", f"/im/v1/messages/{quote(ref.message_id, safe='')}", body)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file of a message."""
        message_id, kind, key = attachment.reference.split(" ")
        path = f"/im/v1/messages/{quote(message_id, safe='')}/resources/{quote(key, safe='')}?type={kind}"
        headers, limit = await self._api.authorization(), self._settings.file_limit
        url = f"{self._settings.api}/open-apis{path}"
        data = await self._api.download(url, headers, self._settings.file_patience, limit)
        return save_file(data, attachment.name or attachment.kind, folder, attachment.media_type)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Post the first message of a thread; ``None`` if the bot isn't in the chat."""
        title = " ".join(sanitize_text(name).split())[:_THREAD_NAME] or "Conversation"
        text = msgspec.json.encode({"text": title}).decode()
        try:
            return await self._post(Address(self.name, parent_chat_id, "group"), "text", text, "")
        except Rejected as error:
            log.warning("%s: can't create a thread in %s: %s", self.name, parent_chat_id, error)
            return None

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    def _verify(self, request: PushRequest, body: bytes) -> None:
        """Check signature and token; the test of the address has only the token."""
        event = read_event(decrypt_body(body, self._settings.encrypt_key))
        if event.type != "url_verification":
            check_post(request, body, self._settings.encrypt_key, datetime.now(UTC))
        check_token(event.token if event.header is None else event.header.token, self._settings.token)

    def _answer_challenge(self, body: bytes) -> PushResponse | None:
        event = read_event(decrypt_body(body, self._settings.encrypt_key))
        if event.type != "url_verification":
            return None
        return PushResponse(200, msgspec.json.encode({"challenge": event.challenge}), "application/json")

    async def _parse(self, body: bytes) -> Sequence[Incoming]:
        event = read_event(decrypt_body(body, self._settings.encrypt_key))
        author = author_of(event)
        if not author:
            return []
        incoming = to_incoming(event, Sender(author, await self._find_name(author)), self._bot_id, self._settings)
        return [] if incoming is None else [incoming]

    async def _find_name(self, open_id: str) -> str:
        """Return a person's name; their id if the app may not read it."""
        if open_id not in self._names:
            try:
                found = await self._call("GET", f"/contact/v3/users/{quote(open_id, safe='')}?user_id_type=open_id")
            except PlatformError:
                return open_id
            self._names[open_id] = str((found.data.user or {}).get("name") or open_id)
            if len(self._names) > _MOST_NAMES:
                self._names.popitem(last=False)
        return self._names[open_id]

    async def _upload(self, file: File | Image, path: Path) -> tuple[str, str]:
        """Upload a file, and return the kind and the content of its message."""
        name = getattr(file, "name", "") or path.name
        data = await asyncio.to_thread(path.read_bytes)
        if Path(name).suffix.lower() in _PICTURES and len(data) <= _LARGEST_PICTURE:
            form = encode_form({"image_type": "message"}, FormFile("image", name, data, "application/octet-stream"))
            found = await self._call("POST", "/im/v1/images", form.body, form.content_type)
            return "image", msgspec.json.encode({"image_key": found.data.image_key}).decode()
        fields = {"file_type": "stream", "file_name": name}
        form = encode_form(fields, FormFile("file", name, data, "application/octet-stream"))
        found = await self._call("POST", "/im/v1/files", form.body, form.content_type)
        return "file", msgspec.json.encode({"file_key": found.data.file_key}).decode()

    async def _post(self, to: Address, kind: str, content: str, request_id: str) -> str:
        """Post a message and return its id; in a thread it answers the first message."""
        body: dict[str, object] = {"msg_type": kind, "content": content}
        if request_id:
            body["uuid"] = request_id
        if to.thread_id:
            path = f"/im/v1/messages/{quote(to.thread_id, safe='')}/reply"
            body["reply_in_thread"] = True
        else:
            path = "/im/v1/messages?receive_id_type=chat_id"
            body["receive_id"] = to.chat_id
        answer = await self._call("POST", path, msgspec.json.encode(body), has_key=bool(request_id))
        return answer.data.message_id

    async def _call(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "", *, has_key: bool = False
    ) -> FeishuAnswer:
        url = f"{self._settings.api}/open-apis{path}"
        headers = {} if body is None else {"content-type": content_type} if content_type else _JSON
        patience = self._settings.file_patience if content_type else self._settings.patience
        answer = await self._api.call(method, url, headers, patience, body=body, has_key=has_key)
        found = read_answer(answer)
        if found.code != 0:  # some refusals have the status of a success
            raise to_error(answer)
        return found


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the app of a profile."""
    secrets = {field: account.secret(name) or "" for field, name in SECRETS.items()}
    if missing := [SECRETS[field] for field, value in secrets.items() if not value]:
        raise Refused(f"Feishu needs {' and '.join(missing)}. `talaria setup chat` asks for them.")
    platform = Feishu(read_settings(account.name, account.options, secrets))
    account.closing.push_async_callback(platform.close)
    return platform
