"""The SMS adapter: receives signed posts of Twilio, lists missed messages, and sends replies."""

import asyncio
import base64
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

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
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Refused, Rejected, Unreachable
from talaria.core.messages import File, Image
from talaria.platforms.content import save_file
from talaria.platforms.http_api import HttpApi, require_file
from talaria.platforms.push_receiver import PushRequest, PushResponse
from talaria.platforms.signatures import check_signatures
from talaria.platforms.sms.settings import SmsSettings, TwilioCredentials, read_settings
from talaria.platforms.sms.wire import (
    TEXT_LIMIT,
    MediaPage,
    PhoneNumbers,
    ReceivedSms,
    SentSms,
    SmsPage,
    find_keyword,
    list_query,
    make_forms,
    read_form,
    read_post,
    sign_form,
    signed_urls,
    to_error,
    to_incoming,
)
from talaria.platforms.webhook_endpoint import CatchUp, PublicFiles, WebhookEndpoint

SMS_LISTED = NamedValue("sms_listed", datetime)  # by account: every message until then was received
SMS_OPTED_OUT = NamedValue("sms_opted_out", bool)  # by account and phone number

T = TypeVar("T")
_OVERLAP = timedelta(minutes=5)  # a message can be listed some time after it was sent
_SHOWN = ("image/", "audio/", "video/")
_EMPTY_REPLY = PushResponse(200, b"<Response/>", "text/xml")


class Sms(PlatformDefaults):
    """One phone number. Files to send are offered at the public address for a day; the creator closes it."""

    def __init__(self, settings: SmsSettings, store: Store, folder: Path) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            text_unit="utf16",
            replies=False,
            progress=False,
            exclusive=True,
            file_limit=settings.file_limit,
        )
        self._settings = settings
        self._store = store
        self._api = HttpApi("Twilio", to_error)
        self._files = PublicFiles(folder / "files", settings.endpoint.public_url)
        self._accepting = asyncio.Lock()
        self._catch_up = CatchUp(self._list_missed, settings.interval)
        self._endpoint = WebhookEndpoint(
            settings.endpoint,
            self._verify,
            self._parse,
            files=self._files,
            accepted=_EMPTY_REPLY,
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Listen, let Twilio post messages here, and begin with those that were sent meanwhile."""
        key, now = self._settings.name, datetime.now(UTC)
        if await self._store.read(lambda tx: SMS_LISTED.get(tx, key)) is None:  # the first time: no history
            await self._store.write(lambda tx: SMS_LISTED.write(tx, key, now))
        async with self._endpoint.connect(self._catch_up) as updates:
            await self._register()
            yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Send a text with pictures, sounds and films; other files are links."""
        if await self._store.read(lambda tx: SMS_OPTED_OUT.get(tx, self._make_person_key(to.chat_id))):
            raise Rejected(f"{to.chat_id} has opted out with STOP; they can send START to get messages again")
        media: list[str] = []
        links: list[str] = []
        for path, name, kind in [self._require_file(file) for file in content.files]:
            (media if kind.startswith(_SHOWN) else links).append(self._files.publish(path, name))
        sent = [
            await self._call("POST", "/Messages.json", SentSms, form)
            for form in make_forms(to.chat_id, content.text, media, links, self._settings)
        ]
        return MessageRef(to, sent[0].sid)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file of a message."""
        url = f"{self._settings.account_url}/Messages/{attachment.reference}"
        data = await self._api.download(
            url, self._make_headers(), self._settings.file_patience, self._settings.file_limit
        )
        return save_file(data, attachment.kind, folder, attachment.media_type)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    def _verify(self, request: PushRequest, body: bytes) -> None:
        form, token = read_form(body), self._settings.credentials.token
        possible = [sign_form(token, url, form) for url in signed_urls(self._settings.endpoint.public_url)]
        check_signatures(request.headers.get("x-twilio-signature", ""), possible)

    async def _parse(self, body: bytes) -> Sequence[Incoming]:
        message = read_post(read_form(body))
        update = await self._accept(message) if message is not None else None
        return () if update is None else (update,)

    async def _accept(self, message: ReceivedSms) -> Incoming | None:
        """Return what a person wrote to the agent; ``None`` for what they ask the network for, which Twilio answers.

        START is such a request only from people who have opted out.
        """
        async with self._accepting:  # a message can be posted and listed at the same time
            if message.sid in self._catch_up or not message.sender:
                return None
            keyword, key = find_keyword(message), self._make_person_key(message.sender)
            if keyword == "STOP":
                await self._store.write(lambda tx: SMS_OPTED_OUT.write(tx, key, True))  # noqa: FBT003 (the value)
            elif keyword == "START":
                keyword = keyword if await self._store.write(lambda tx: SMS_OPTED_OUT.delete(tx, key)) else ""
            if keyword:
                self._catch_up.remember(message.sid)
                return None
        return to_incoming(message, self._settings, datetime.now(UTC))

    async def _list_missed(self) -> AsyncGenerator[Incoming, None]:
        """Yield the messages since the last list, oldest first, and record the time when all are acknowledged."""
        name, now = self._settings.name, datetime.now(UTC)
        since = await self._store.read(lambda tx: SMS_LISTED.get(tx, name)) or now
        listed: list[ReceivedSms] = []
        path: str | None = f"/Messages.json?{list_query(self._settings.credentials.number, since - _OVERLAP)}"
        while path:
            page = await self._call("GET", path, SmsPage)
            listed += [one for one in page.messages if one.direction == "inbound"]
            path = (page.next_page_uri or "").rpartition(f"/{self._settings.credentials.account}")[2]
        for message in reversed(listed):
            if message.num_media not in {"", "0"}:
                found = await self._call("GET", f"/Messages/{message.sid}/Media.json", MediaPage)
                message.media = found.media_list
            if (update := await self._accept(message)) is not None:
                yield update
        await self._store.write(lambda tx: SMS_LISTED.write(tx, name, now))

    async def _register(self) -> None:
        """Let Twilio post messages of the number here."""
        number, url = self._settings.credentials.number, self._settings.endpoint.public_url
        query = urlencode({"PhoneNumber": number})
        found = await self._call("GET", f"/IncomingPhoneNumbers.json?{query}", PhoneNumbers)
        if not found.incoming_phone_numbers:
            raise BadCredentials(f"the account at Twilio doesn't have the number {number}")
        known = found.incoming_phone_numbers[0]
        if (known.sms_url, known.sms_method) != (url, "POST"):
            form = urlencode({"SmsUrl": url, "SmsMethod": "POST"}).encode()
            await self._call("POST", f"/IncomingPhoneNumbers/{known.sid}.json", SentSms, form)

    def _require_file(self, file: File | Image) -> tuple[Path, str, str]:
        """Return path, name and media type of a file to send."""
        path = require_file(file, self._settings.file_limit)
        name = getattr(file, "name", "") or path.name
        return path, name, mimetypes.guess_type(name)[0] or file.media_type

    async def _call(self, method: str, path: str, kind: type[T], form: bytes | None = None) -> T:
        headers = self._make_headers()
        if form is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
        url = f"{self._settings.account_url}{path}"
        answer = await self._api.call(method, url, headers, self._settings.patience, body=form)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            raise Unreachable("the answer is not that of Twilio") from error

    def _make_headers(self) -> dict[str, str]:
        given = self._settings.credentials
        return {"authorization": f"Basic {base64.b64encode(f'{given.account}:{given.token}'.encode()).decode()}"}

    def _make_person_key(self, number: str) -> str:
        return f"{self._settings.name}:{number}"


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the phone number of a profile."""
    names = ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN", "TWILIO_PHONE_NUMBER")
    given = [account.secret(name) or "" for name in names]
    if not all(given):
        raise Refused(f"SMS needs {', '.join(names[:2])} and {names[2]}. `talaria setup chat` asks for them.")
    platform = Sms(
        read_settings(account.name, account.options, TwilioCredentials(*given)), account.store, account.folder
    )
    account.closing.push_async_callback(platform.close)
    return platform
