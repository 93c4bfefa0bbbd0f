"""The Google Chat adapter: receives events with signed tokens, posts with request ids, and edits."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

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
)
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected, Unreachable
from talaria.platforms.content import sanitize_text, save_file
from talaria.platforms.googlechat.settings import CHAT_ACCOUNT, GoogleChatSettings, read_settings
from talaria.platforms.googlechat.wire import (
    TEXT_LIMIT,
    ChatMessage,
    last_part,
    make_key,
    make_message,
    read_event,
    to_error,
    to_incoming,
)
from talaria.platforms.http_api import HttpApi, require_file
from talaria.platforms.jwt_check import SigningKeys, verify_token
from talaria.platforms.push_receiver import PushRequest, PushResponse
from talaria.platforms.signatures import BadSignature
from talaria.platforms.webhook_endpoint import PublicFiles, WebhookEndpoint

log = logging.getLogger(__name__)

_PICTURES = {".png", ".jpg", ".jpeg"}
_THREAD_NAME = 200
_NO_REPLY = PushResponse(200, b"{}", "application/json")


class GoogleChat(PlatformDefaults):
    """One app. Files to send are offered at the public address for a day; the creator closes it."""

    def __init__(self, settings: GoogleChatSettings, folder: Path) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            text_unit="bytes",
            replies=False,
            edits=True,
            edit_pace=timedelta(seconds=2),
            buttons=True,
            threads=True,
            idempotent=True,
            exclusive=True,
            backlog=False,
            file_limit=settings.file_limit,
            rates=Rates(network=Rate(50, 50), chat=Rate(1, 10), group=Rate(1, 10)),
        )
        self._settings = settings
        self._api = HttpApi("Google Chat", to_error, settings.token_request, settings.patience)
        self._keys = SigningKeys(settings.signing_keys_url, settings.patience)
        self._files = PublicFiles(folder / "files", settings.endpoint.public_url)
        self._endpoint = WebhookEndpoint(
            settings.endpoint, self._verify, self._parse, files=self._files, accepted=_NO_REPLY
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, and let Google call."""
        await self._api.authorization()
        async with self._endpoint.connect() as updates:
            yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a message; pictures are shown on a card, other files are links."""
        paths = [require_file(file, self._settings.file_limit) for file in content.files]
        pictures, links = [], []
        for file, path in zip(content.files, paths, strict=True):
            name = getattr(file, "name", "") or path.name
            url = self._files.publish(path, name)
            if Path(name).suffix.lower() in _PICTURES:
                pictures.append((name, url))
            else:
                links.append(f"{name}: {url}")
        message = await self._post(to, make_message(content, pictures, links), make_key(to, key))
        return MessageRef(to, last_part(message.name))

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a message and its buttons."""
        name = f"spaces/{quote(ref.address.chat_id, safe='')}/messages/{quote(ref.message_id, safe='')}"
        await self._call("PATCH", f"{name}?updateMask=text,cardsV2", make_message(content, (), ()))

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file of a message."""
        url = f"{self._settings.api_url}/v1/media/{quote(attachment.reference, safe='/=')}?alt=media"
        headers = await self._api.authorization()
        data = await self._api.download(url, headers, self._settings.file_patience, self._settings.file_limit)
        return save_file(data, attachment.name or attachment.kind, folder, attachment.media_type)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Post the first message of a thread; ``None`` if the space has no threads, or isn't there."""
        title = " ".join(sanitize_text(name).split())[:_THREAD_NAME] or "Conversation"
        try:
            made = await self._post(Address(self.name, parent_chat_id, "group"), {"text": title}, "")
        except Rejected as error:
            log.warning("%s: can't create a thread in %s: %s", self.name, parent_chat_id, error)
            return None
        return last_part(made.thread.name) or None

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()
        await self._keys.close()

    async def _verify(self, request: PushRequest, body: bytes) -> None:
        """Check the token: it is for us and from Google Chat."""
        token = await verify_token(
            request.headers.get("authorization", ""),
            self._keys,
            issuers=self._settings.issuers,
            audience=self._settings.audience,
        )
        if not self._settings.project_number and token.claims.get("email") != CHAT_ACCOUNT:
            raise BadSignature("the token belongs to another account of Google")

    async def _parse(self, body: bytes) -> Sequence[Incoming]:
        incoming = to_incoming(read_event(body), self.name)
        return [] if incoming is None else [incoming]

    async def _post(self, to: Address, message: dict[str, Any], request_id: str) -> ChatMessage:
        space = f"spaces/{quote(to.chat_id, safe='')}"
        query = {"requestId": request_id} if request_id else {}
        if to.thread_id:
            message["thread"] = {"name": f"spaces/{to.chat_id}/threads/{to.thread_id}"}
            query["messageReplyOption"] = "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD"
        return await self._call("POST", f"{space}/messages?{urlencode(query)}", message, has_key=bool(request_id))

    async def _call(self, method: str, path: str, body: dict[str, Any], *, has_key: bool = False) -> ChatMessage:
        url, headers = f"{self._settings.api_url}/v1/{path}", {"content-type": "application/json"}
        encoded = msgspec.json.encode(body)
        answer = await self._api.call(method, url, headers, self._settings.patience, body=encoded, has_key=has_key)
        try:
            return msgspec.json.decode(answer.body, type=ChatMessage)
        except msgspec.DecodeError as error:
            raise Unreachable("the answer is not that of Google Chat") from error


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the app of a profile."""
    credentials = account.secret("GOOGLE_CHAT_CREDENTIALS")
    if not credentials:
        raise Refused("Google Chat needs GOOGLE_CHAT_CREDENTIALS, a key file. `talaria setup chat` asks for it.")
    platform = GoogleChat(read_settings(account.name, account.options, credentials), account.folder)
    account.closing.push_async_callback(platform.close)
    return platform
