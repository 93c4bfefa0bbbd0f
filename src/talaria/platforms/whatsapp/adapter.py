"""The WhatsApp adapter: receives signed webhooks of the Cloud API, and sends messages, templates and files."""

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

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
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxFilter
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, Refused, Rejected, Unreachable
from talaria.core.messages import File, Image
from talaria.http_client.connection import FormFile, encode_form
from talaria.platforms.content import save_file
from talaria.platforms.http_api import HttpApi, require_file
from talaria.platforms.push_receiver import PushRequest
from talaria.platforms.signatures import check_signatures, sign
from talaria.platforms.webhook_endpoint import PublicFiles, WebhookEndpoint
from talaria.platforms.whatsapp.settings import WhatsAppSecrets, WhatsAppSettings, read_settings
from talaria.platforms.whatsapp.wire import (
    CLOSED_CODE,
    TEXT_LIMIT,
    DeliveryReport,
    MediaLocation,
    SentMessages,
    UploadedMedia,
    WindowClosed,
    choose_upload,
    find_contact,
    make_messages,
    make_templates,
    read_values,
    to_error,
    to_incoming,
)

T = TypeVar("T")
_MARGIN = timedelta(minutes=5)  # a message takes time to arrive
_REMEMBERED = 500
_RATES = Rates(network=Rate(80, 80), chat=Rate(1 / 6, 45))  # documented: 80 a second, one in 6 s to the same person

log = logging.getLogger(__name__)


class LastReceived(Struct, frozen=True):
    """The last message of a person: its time, after which the chat is open for a day, and its id."""

    at: datetime
    message_id: str


WHATSAPP_CHAT = NamedValue("whatsapp_chat", LastReceived)  # by account and id of the person


class WhatsApp(PlatformDefaults):
    """One business number. Files of other types are offered at the public address; the creator closes it."""

    def __init__(self, settings: WhatsAppSettings, store: Store, folder: Path) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            typing=settings.read_receipts,
            buttons=True,
            reactions=True,
            exclusive=True,
            file_limit=settings.file_limit,
            rates=_RATES,
        )
        self._settings = settings
        self._store = store
        self._api = HttpApi("WhatsApp", to_error)
        self._files = PublicFiles(folder / "files", settings.endpoint.public_url)
        self._endpoint = WebhookEndpoint(
            settings.endpoint, self._verify, self._parse, challenge=self._answer_challenge, files=self._files
        )
        self._sent: OrderedDict[str, tuple[Address, Content]] = OrderedDict()
        self._marked: OrderedDict[str, None] = OrderedDict()  # ids of messages that are marked as read

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Listen; Meta repeats posts for days until they are accepted."""
        await self._call("GET", f"/{self._settings.phone_number_id}?fields=display_phone_number", dict)
        async with self._endpoint.connect() as updates:
            yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Send a message, or a template if the person hasn't written for a day."""
        known = await self._find_last(to.chat_id)
        if known is None or datetime.now(UTC) - known.at > self._settings.window - _MARGIN:
            return await self._send_template(to, content)
        media, links = await self._upload_all(content)
        messages = make_messages(content, media, links)
        await self._mark_read(known)
        try:
            sent = [await self._post(to, message) for message in messages]
        except WindowClosed:
            await self._close_window(to.chat_id)
            return await self._send_template(to, content)
        self._remember_sent(sent[0], to, content)
        return MessageRef(to, sent[0])

    async def show_typing(self, to: Address) -> None:
        """Mark the last message as read and show that an answer is being written."""
        if (known := await self._find_last(to.chat_id)) is not None:
            await self._post_status(known.message_id, {"typing_indicator": {"type": "text"}})

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message."""
        reaction = {"message_id": ref.message_id, "emoji": emoji}
        await self._post(ref.address, {"type": "reaction", "reaction": reaction})

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file: its id gives an address that works for some minutes."""
        query = f"?phone_number_id={self._settings.phone_number_id}"
        found = await self._call("GET", f"/{quote(attachment.reference, safe='')}{query}", MediaLocation)
        limit = self._settings.file_limit
        if found.file_size > limit:
            raise Rejected(f"the file has more than {limit} bytes")
        data = await self._api.download(found.url, self._make_headers(), self._settings.file_patience, limit)
        return save_file(data, attachment.name or attachment.kind, folder, attachment.media_type)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    def _answer_challenge(self, query: Mapping[str, str]) -> str | None:
        """Return the word that Meta wants to read when it tests the address."""
        given = query.get("hub.verify_token", "").encode(errors="replace")
        is_right = hmac.compare_digest(given, self._settings.secrets.verify_token.encode())
        return query.get("hub.challenge") if is_right and query.get("hub.mode") == "subscribe" else None

    def _verify(self, request: PushRequest, body: bytes) -> None:
        expected = f"sha256={sign(self._settings.secrets.app_secret, body).hex()}"
        check_signatures(expected, [request.headers.get("x-hub-signature-256", "")])

    async def _parse(self, body: bytes) -> Sequence[Incoming]:
        updates: list[Incoming] = []
        for value in read_values(body, self._settings.phone_number_id):
            found = [to_incoming(one, find_contact(value, one), self._settings) for one in value.messages]
            updates += [one for one in found if one is not None]
            for report in value.statuses:
                await self._handle_report(report)
        if opening := [one for one in updates if not one.reaction and not one.formerly]:
            await self._store.write(lambda tx: self._open_windows(tx, opening))
        return updates

    def _open_windows(self, tx: Transaction, updates: Sequence[Incoming]) -> None:
        """Record that chats are open; messages that wait for that in the outbox are due."""
        opened: set[str] = set()
        for update in updates:
            for person in (update.sender.id, *update.sender.aliases):
                key = self._make_chat_key(person)
                known = WHATSAPP_CHAT.get(tx, key)
                if known is None or known.at <= update.at:
                    WHATSAPP_CHAT.write(tx, key, LastReceived(update.at, update.message_id))
                if known is None or update.at - known.at > self._settings.window - _MARGIN:
                    opened.add(person)
        if opened:
            for item in tx.outbox.find(OutboxFilter(platform=self.name)):
                if item.address.chat_id in opened and item.error:
                    tx.outbox.requeue(item.id)

    async def _handle_report(self, report: DeliveryReport) -> None:
        """Send a message again as a template that was refused because the chat is closed; log other failures."""
        to, content = self._sent.pop(report.id, (None, None)) if report.status == "failed" else (None, None)
        if report.status != "failed":
            log.debug("%s: message %s is %s", self.name, report.id, report.status)
            return
        codes = [error.code for error in report.errors]
        log.warning("%s: message %s failed: %s", self.name, report.id, [(one.code, one.title) for one in report.errors])
        if CLOSED_CODE not in codes:
            return
        await self._close_window(report.recipient_id or report.recipient_user_id)
        if to is not None and content is not None:
            try:
                await self._send_template(to, content)
            except PlatformError as error:
                log.warning("%s: message %s can't be sent as a template: %s", self.name, report.id, error)

    async def _send_template(self, to: Address, content: Content) -> MessageRef:
        if not self._settings.template:
            raise WindowClosed(
                f"{to.chat_id} hasn't written for {self._settings.window}, so WhatsApp takes only templates. The "
                f"message waits until they write. To send it now, set the option template of platforms.{self.name}"
            )
        links = [self._publish_file(file) for file in content.files]
        text = "\n".join(filter(None, (content.text, *links)))
        templates = make_templates(structs.replace(content, text=text), self._settings)
        sent = [await self._post(to, template) for template in templates]
        return MessageRef(to, sent[0])

    async def _upload_all(self, content: Content) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the messages of uploaded files, and links to the others."""
        paths = [(file, require_file(file, self._settings.file_limit)) for file in content.files]
        media: list[dict[str, Any]] = []
        links: list[str] = []
        for file, path in paths:
            name = getattr(file, "name", "") or path.name
            upload = choose_upload(name, file.media_type, path.stat().st_size)
            if not upload.kind:
                links.append(self._publish_file(file))
                continue
            data = await asyncio.to_thread(path.read_bytes)
            media_id = await self._upload(name, data, upload.media_type)
            shown = {"id": media_id, "filename": name} if upload.kind == "document" else {"id": media_id}
            media.append({"type": upload.kind, upload.kind: shown})
        return media, links

    def _publish_file(self, file: File | Image) -> str:
        path = require_file(file, self._settings.file_limit)
        return self._files.publish(path, getattr(file, "name", "") or path.name)

    async def _upload(self, name: str, data: bytes, media_type: str) -> str:
        form = encode_form(
            {"messaging_product": "whatsapp", "type": media_type}, FormFile("file", name, data, media_type)
        )
        path = f"/{self._settings.phone_number_id}/media"
        patience = self._settings.file_patience
        found = await self._call("POST", path, UploadedMedia, form.body, form.content_type, patience=patience)
        return found.id

    async def _post(self, to: Address, message: Mapping[str, Any]) -> str:
        """Send one message to a phone number or another id of a person, and return its id."""
        field = "to" if to.chat_id.isdigit() else "recipient"
        body = {"messaging_product": "whatsapp", "recipient_type": "individual", field: to.chat_id, **message}
        path = f"/{self._settings.phone_number_id}/messages"
        answer = await self._call("POST", path, SentMessages, msgspec.json.encode(body))
        return answer.messages[0].id

    async def _mark_read(self, known: LastReceived) -> None:
        """Mark a message as read that is being answered; a failure doesn't matter."""
        if self._settings.read_receipts and known.message_id not in self._marked:
            try:
                await self._post_status(known.message_id, {})
            except PlatformError as error:
                log.debug("%s: couldn't mark a message as read: %s", self.name, error)

    async def _post_status(self, message_id: str, more: Mapping[str, Any]) -> None:
        body = {"messaging_product": "whatsapp", "status": "read", "message_id": message_id, **more}
        await self._call("POST", f"/{self._settings.phone_number_id}/messages", dict, msgspec.json.encode(body))
        self._marked[message_id] = None
        while len(self._marked) > _REMEMBERED:
            self._marked.popitem(last=False)

    def _remember_sent(self, message_id: str, to: Address, content: Content) -> None:
        self._sent[message_id] = (to, content)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    async def _find_last(self, chat_id: str) -> LastReceived | None:
        return await self._store.read(lambda tx: WHATSAPP_CHAT.get(tx, self._make_chat_key(chat_id)))

    async def _close_window(self, chat_id: str) -> None:
        await self._store.write(lambda tx: WHATSAPP_CHAT.delete(tx, self._make_chat_key(chat_id)))

    def _make_chat_key(self, chat_id: str) -> str:
        return f"{self.name}:{chat_id}"

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: bytes | None = None,
        content_type: str = "application/json",
        *,
        patience: timedelta | None = None,
    ) -> T:
        headers = self._make_headers() | ({"content-type": content_type} if body is not None else {})
        url, seconds = f"{self._settings.base_url}{path}", patience or self._settings.patience
        answer = await self._api.call(method, url, headers, seconds, body=body)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            raise Unreachable("the answer is not that of WhatsApp") from error

    def _make_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._settings.secrets.token}", "user-agent": "talaria"}


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the business number of a profile."""
    names = ("WHATSAPP_TOKEN", "WHATSAPP_APP_SECRET", "WHATSAPP_VERIFY_TOKEN")
    given = [account.secret(name) or "" for name in names]
    if not all(given):
        raise Refused(f"WhatsApp needs {', '.join(names[:2])} and {names[2]}. `talaria setup chat` asks for them.")
    settings = read_settings(account.name, account.options, WhatsAppSecrets(*given))
    platform = WhatsApp(settings, account.store, account.folder)
    account.closing.push_async_callback(platform.close)
    return platform
