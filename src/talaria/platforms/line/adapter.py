"""The LINE adapter: receives signed webhooks, and pushes replies with retry keys."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
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
)
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, Refused, Unreachable
from talaria.core.messages import File, Image
from talaria.platforms.content import save_file
from talaria.platforms.http_api import ApiAnswer, HttpApi, require_file
from talaria.platforms.line.settings import LineSettings, read_settings
from talaria.platforms.line.wire import (
    MOST_MESSAGES,
    TEXT_LIMIT,
    LineProfile,
    LinePushed,
    LineSource,
    make_key,
    make_messages,
    read_events,
    to_error,
    to_incoming,
)
from talaria.platforms.push_receiver import PushRequest
from talaria.platforms.signatures import check_signatures, sign_base64
from talaria.platforms.webhook_endpoint import PublicFiles, WebhookEndpoint

_CONFLICT = 409
_REMEMBERED = 1000
_PICTURES = (".jpg", ".jpeg", ".png")
_LARGEST_PREVIEW = 1024 * 1024  # bytes; the picture is its own preview
_TYPING_SECONDS = 20


class Line(PlatformDefaults):
    """One official account. Files to send are offered at the public address for a day; the creator closes it."""

    def __init__(self, settings: LineSettings, folder: Path) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            text_unit="utf16",
            typing=True,
            buttons=True,
            idempotent=True,
            exclusive=True,
            file_limit=settings.file_limit,
        )
        self._settings = settings
        self._api = HttpApi("LINE", to_error, known_key=_CONFLICT)
        self._files = PublicFiles(folder / "files", settings.endpoint.public_url)
        self._endpoint = WebhookEndpoint(settings.endpoint, self._verify, self._parse, files=self._files)
        self._names: OrderedDict[str, str] = OrderedDict()
        self._quotes: OrderedDict[str, str] = OrderedDict()  # quote tokens of received messages

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Listen, and let LINE call; messages that it can't deliver are redelivered later."""
        await self._call("GET", "/v2/bot/info")
        async with self._endpoint.connect() as updates:
            await self._call(
                "PUT", "/v2/bot/channel/webhook/endpoint", {"endpoint": self._settings.endpoint.public_url}
            )
            yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Push a message; pictures are shown, other files are links."""
        press_key = make_key(to, key, 0)
        links = [self._publish(file) for file in content.files]
        messages = make_messages(content, links, press_key, self._quotes.get(content.reply_to, ""))
        sent: list[str] = []
        for part in range(0, len(messages), MOST_MESSAGES):
            body = {"to": to.chat_id, "messages": messages[part : part + MOST_MESSAGES]}
            answer = await self._call("POST", "/v2/bot/message/push", body, make_key(to, key, part))
            sent += [one.id for one in _decode(answer, LinePushed).sent_messages]
        # A pressed button names no message, so its data has this key: it is the id of a message with buttons.
        return MessageRef(to, press_key if content.buttons else next(iter(sent), press_key))

    async def show_typing(self, to: Address) -> None:
        """Show the loading animation; LINE has none in groups."""
        if to.chat_type == "private":
            await self._call(
                "POST", "/v2/bot/chat/loading/start", {"chatId": to.chat_id, "loadingSeconds": _TYPING_SECONDS}
            )

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download the content of a message."""
        url = f"{self._settings.data_url}/v2/bot/message/{quote(attachment.reference, safe='')}/content"
        data = await self._api.download(
            url, self._make_headers(), self._settings.file_patience, self._settings.file_limit
        )
        return save_file(data, attachment.name or attachment.kind, folder, attachment.media_type)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    def _verify(self, request: PushRequest, body: bytes) -> None:
        check_signatures(sign_base64(self._settings.secret, body), [request.headers.get("x-line-signature", "")])

    async def _parse(self, body: bytes) -> Sequence[Incoming]:
        updates = []
        for event in read_events(body):
            name = await self._find_name(event.source) if event.source and event.source.user_id else ""
            if (incoming := to_incoming(event, name, self._settings)) is not None:
                updates.append(incoming)
                if event.message is not None and event.message.quote_token:
                    _remember(self._quotes, event.message.id, event.message.quote_token)
        return updates

    async def _find_name(self, source: LineSource) -> str:
        """Return a person's display name; their id if LINE doesn't tell."""
        if source.user_id not in self._names:
            user = quote(source.user_id, safe="")
            path = f"/v2/bot/profile/{user}"
            if source.group_id or source.room_id:
                kind = "group" if source.group_id else "room"
                path = f"/v2/bot/{kind}/{quote(source.chat_id, safe='')}/member/{user}"
            try:
                profile = _decode(await self._call("GET", path), LineProfile)
            except PlatformError:
                return source.user_id
            _remember(self._names, source.user_id, profile.display_name or source.user_id)
        return self._names[source.user_id]

    def _publish(self, file: File | Image) -> dict[str, Any]:
        """Return the message object of a file: a picture, or a text with a link."""
        path = require_file(file, self._settings.file_limit)
        name = getattr(file, "name", "") or path.name
        url = self._files.publish(path, name)
        if name.lower().endswith(_PICTURES) and path.stat().st_size <= _LARGEST_PREVIEW:
            return {"type": "image", "originalContentUrl": url, "previewImageUrl": url}
        return {"type": "text", "text": f"{name}\n{url}"}

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None, key: str = "") -> ApiAnswer:
        headers = self._make_headers()
        if body is not None:
            headers["content-type"] = "application/json"
        if key:
            headers["x-line-retry-key"] = key
        return await self._api.call(
            method,
            f"{self._settings.api_url}{path}",
            headers,
            self._settings.patience,
            body=None if body is None else msgspec.json.encode(body),
            has_key=bool(key),
        )

    def _make_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._settings.token}"}


def _decode(answer: ApiAnswer, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise Unreachable("the answer is not that of LINE") from error


def _remember(known: OrderedDict[str, str], key: str, value: str) -> None:
    known[key] = value
    while len(known) > _REMEMBERED:
        known.popitem(last=False)


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the channel of a profile."""
    token, secret = account.secret("LINE_CHANNEL_TOKEN"), account.secret("LINE_CHANNEL_SECRET")
    if not token or not secret:
        raise Refused("LINE needs LINE_CHANNEL_TOKEN and LINE_CHANNEL_SECRET. `talaria setup chat` asks for them.")
    platform = Line(read_settings(account.name, account.options, token, secret), account.folder)
    account.closing.push_async_callback(platform.close)
    return platform
