"""The Microsoft Teams adapter: receives activities with signed tokens, and posts, edits and shows typing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
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
    Rate,
    Rates,
)
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Unreachable
from talaria.core.messages import File, Image
from talaria.platforms.content import sanitize_text, save_file
from talaria.platforms.http_api import HttpApi, require_file
from talaria.platforms.jwt_check import SigningKeys, verify_token
from talaria.platforms.push_receiver import PushRequest
from talaria.platforms.signatures import BadSignature
from talaria.platforms.teams.settings import TeamsSettings, read_settings
from talaria.platforms.teams.wire import (
    CHANNEL,
    TEXT_LIMIT,
    ConversationReference,
    TeamsActivity,
    TeamsCreated,
    conversation_id,
    make_activity,
    read_activity,
    read_address,
    read_reference,
    to_error,
    to_incoming,
    to_reference,
)
from talaria.platforms.webhook_endpoint import PublicFiles, WebhookEndpoint

TEAMS_CONVERSATION = NamedValue("teams_conversation", ConversationReference)  # by account and chat
_ISSUER = "https://api.botframework.com"
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif"}
_LARGEST_PICTURE = 1024 * 1024  # of those that Teams shows in a message
_THREAD_NAME = 200
_MOST_CACHED = 1000


class Teams:
    """One bot. Files to send are offered at the public address for a day; the creator closes it."""

    def __init__(self, settings: TeamsSettings, store: Store, folder: Path) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            text_unit="utf16",
            replies=False,
            edits=True,
            edit_pace=timedelta(seconds=2),
            typing=True,
            buttons=True,
            threads=True,
            servers=True,
            exclusive=True,
            backlog=False,
            file_limit=settings.file_limit,
            rates=Rates(network=Rate(50, 50), chat=Rate(0.5, 7), group=Rate(0.5, 7)),
        )
        self._settings = settings
        self._store = store
        self._api = HttpApi("Microsoft Teams", to_error, settings.token_request, settings.patience)
        self._keys = SigningKeys(settings.openid_url, settings.patience, is_metadata=True)
        self._files = PublicFiles(folder / "files", settings.endpoint.public_url)
        self._endpoint = WebhookEndpoint(settings.endpoint, self._verify, self._parse, files=self._files)
        self._references: dict[str, ConversationReference] = {}

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, and let Teams call."""
        await self._api.authorization()
        async with self._endpoint.connect() as updates:
            yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a message; small pictures are shown, other files are links."""
        pictures, links = [], []
        for file in content.files:
            path = require_file(file, self._settings.file_limit)
            picture, link = self._publish(file, path)
            pictures += [picture] if picture else []
            links += [link] if link else []
        return MessageRef(to, await self._post(to, make_activity(content, pictures, links)))

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a message and its buttons."""
        root = ref.address.thread_id or (ref.message_id if ref.address.chat_type in {"thread", "channel"} else "")
        path = await self._make_path(ref.address.chat_id, root)
        await self._call("PUT", f"{path}/{quote(ref.message_id, safe='')}", make_activity(content, (), ()))

    async def show_typing(self, to: Address) -> None:
        """Show that we are typing, for some seconds; not in a channel outside its threads."""
        if to.thread_id or to.chat_type in {"private", "group"}:
            await self._post(to, {"type": "typing"})

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a picture with our token, or a file of a personal chat from its open link."""
        url, with_token = read_reference(attachment.reference)
        headers = await self._api.authorization() if with_token else {}
        data = await self._api.download(url, headers, self._settings.file_patience, self._settings.file_limit)
        return save_file(data, attachment.name or attachment.kind, folder, attachment.media_type)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Post the first message of a thread; ``None`` if the chat isn't a channel."""
        if (await self._find_reference(parent_chat_id)).kind != "channel":
            return None
        title = " ".join(sanitize_text(name).split())[:_THREAD_NAME] or "Conversation"
        return await self._post(
            Address(self.name, parent_chat_id, "channel"), {"type": "message", "text": title, "textFormat": "plain"}
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()
        await self._keys.close()

    async def _verify(self, request: PushRequest, body: bytes) -> None:
        """Check the token: it is for us, from the Bot Connector, and for this service and Teams."""
        token = await verify_token(
            request.headers.get("authorization", ""), self._keys, issuers=[_ISSUER], audience=self._settings.app_id
        )
        activity = read_activity(body)
        claimed = token.claims.get("serviceurl") or token.claims.get("serviceUrl") or ""
        if str(claimed).rstrip("/") != activity.service_url.rstrip("/"):
            raise BadSignature("the token is for another service")
        endorsements = token.key.get("endorsements")
        if activity.channel_id != CHANNEL or (endorsements and CHANNEL not in endorsements):
            raise BadSignature("its key isn't for Teams")

    async def _parse(self, body: bytes) -> Sequence[Incoming]:
        activity = read_activity(body)
        await self._save_reference(activity)
        incoming = to_incoming(activity, self._settings)
        return [] if incoming is None else [incoming]

    async def _save_reference(self, activity: TeamsActivity) -> None:
        chat_id, reference = read_address(activity, self.name).chat_id, to_reference(activity)
        if self._references.get(chat_id) != reference:
            await self._store.write(lambda tx: TEAMS_CONVERSATION.write(tx, f"{self.name}:{chat_id}", reference))
            self._cache_reference(chat_id, reference)

    async def _find_reference(self, chat_id: str) -> ConversationReference:
        if chat_id not in self._references:
            stored = await self._store.read(lambda tx: TEAMS_CONVERSATION.get(tx, f"{self.name}:{chat_id}"))
            if stored is None:
                return ConversationReference(self._settings.service_url.rstrip("/"))
            self._cache_reference(chat_id, stored)
        return self._references[chat_id]

    def _cache_reference(self, chat_id: str, reference: ConversationReference) -> None:
        if len(self._references) >= _MOST_CACHED:
            self._references.clear()
        self._references[chat_id] = reference

    def _publish(self, file: File | Image, path: Path) -> tuple[dict[str, str] | None, str]:
        """Return the attachment of a picture, or a Markdown link to another file."""
        name = getattr(file, "name", "") or path.name
        url = self._files.publish(path, name)
        media_type = _PICTURES.get(Path(name).suffix.lower(), "")
        if media_type and path.stat().st_size <= _LARGEST_PICTURE:
            return {"contentType": media_type, "contentUrl": url, "name": name}, ""
        return None, f"[{name.translate({91: 40, 93: 41})}]({url})"

    async def _make_path(self, chat_id: str, root: str = "") -> str:
        service = (await self._find_reference(chat_id)).service_url
        return f"{service}/v3/conversations/{quote(conversation_id(chat_id, root), safe='')}/activities"

    async def _post(self, to: Address, activity: dict[str, Any]) -> str:
        """Post an activity and return its id; in a channel without a thread it starts one."""
        if to.chat_type not in {"thread", "channel"} or to.thread_id:
            return (await self._call("POST", await self._make_path(to.chat_id, to.thread_id), activity)).id
        reference = await self._find_reference(to.chat_id)
        body = {
            "isGroup": True,
            "bot": {"id": reference.bot_id or f"28:{self._settings.app_id}"},
            "channelData": {"channel": {"id": to.chat_id}},
            "activity": activity,
        }
        return (await self._call("POST", f"{reference.service_url}/v3/conversations", body)).activity_id

    async def _call(self, method: str, url: str, body: dict[str, Any]) -> TeamsCreated:
        headers = {"content-type": "application/json"}
        encoded = msgspec.json.encode(body)
        answer = await self._api.call(method, url, headers, self._settings.patience, body=encoded)
        try:
            return msgspec.json.decode(answer.body or b"{}", type=TeamsCreated)
        except msgspec.DecodeError as error:
            raise Unreachable("the answer is not that of Teams") from error


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the bot of a profile."""
    app_id, secret = account.secret("TEAMS_APP_ID"), account.secret("TEAMS_APP_SECRET")
    if not app_id or not secret:
        raise Refused("Teams needs TEAMS_APP_ID and TEAMS_APP_SECRET. `talaria setup chat` asks for them.")
    platform = Teams(read_settings(account.name, account.options, app_id, secret), account.store, account.folder)
    account.closing.push_async_callback(platform.close)
    return platform
