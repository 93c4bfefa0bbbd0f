"""The ntfy adapter: publishes replies to topics, and receives what people publish there."""

import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

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
from talaria.contracts.values import DurableValue, NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import ProviderError, Refused, Rejected, Unreachable
from talaria.core.messages import File, Image
from talaria.http_client.client import Answer, HttpPool
from talaria.http_client.connection import Timeouts
from talaria.platforms.content import save_file
from talaria.platforms.ntfy.settings import NtfySettings, read_settings
from talaria.platforms.ntfy.wire import (
    TEXT_LIMIT,
    NtfyMessage,
    encode_text,
    file_query,
    read_message,
    to_error,
    to_incoming,
)

NTFY_POSITION = NamedValue("ntfy_position", str)  # by account
_OK = 200
_MAX_ANSWER = 64 * 1024


class Ntfy(PlatformDefaults):
    """One account on one server. ``position`` stores the last received message; the creator closes it."""

    def __init__(self, settings: NtfySettings, position: DurableValue) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT, text_unit="bytes", replies=False, exclusive=True, file_limit=settings.file_limit
        )
        self._settings = settings
        self._position = position
        self._pool = HttpPool()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Subscribe to all topics, from the last acknowledged message on."""
        since = await self._position.load()
        url = f"{self._settings.server}/{','.join(self._settings.topics)}/sse?since={since or 'none'}"
        timeouts = Timeouts(self._settings.patience, self._settings.patience, self._settings.silence)
        async with _translate_errors(), self._pool.get(url, self._make_headers(), timeouts) as answer:
            await self._check(answer, receiving=True)
            first = await _read_messages(answer)
            if not since:  # the first time: nothing older is answered
                await self._position.save(str(first[0].time))
            async with aclosing(self._receive(answer, first)) as updates:
                yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Publish a message; the text of one with files is shown with the first file."""
        if to.chat_id not in self._settings.topics:
            raise Rejected(f"{to.chat_id} is not one of the topics in NTFY_TOPIC")
        if not content.files:
            body = encode_text(to.chat_id, content.text, self._settings)
            return await self._publish(to, "POST", f"{self._settings.server}/", body, {})
        files = [(self._read(file), file) for file in content.files]
        refs = [
            await self._publish_file(to, content.text if position == 0 else "", data, file)
            for position, (data, file) in enumerate(files)
        ]
        return refs[0]

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file from this server; a link to another one is refused, since anyone can publish it."""
        if not attachment.reference.startswith(f"{self._settings.server}/"):
            raise Rejected("the file is on another server than the topic, so it isn't downloaded")
        async with (
            _translate_errors(),
            self._pool.get(
                attachment.reference, self._make_headers(), self._make_timeouts(self._settings.file_patience)
            ) as answer,
        ):
            await self._check(answer)
            data = await answer.body(self._settings.file_limit)
        return save_file(data, attachment.name, folder, attachment.media_type)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def _receive(self, answer: Answer, messages: Sequence[NtfyMessage]) -> AsyncGenerator[Incoming, None]:
        while True:
            for message in messages:
                if (incoming := to_incoming(message, self._settings)) is not None:
                    yield incoming
                if message.event == "message":
                    await self._position.save(message.id)
            messages = await _read_messages(answer)

    def _read(self, file: File | Image) -> bytes:
        try:
            path = Path(file.source)
            if (size := path.stat().st_size) > self._settings.file_limit:
                raise Rejected(f"{path.name} has {size} bytes, and the server takes {self._settings.file_limit}")
            return path.read_bytes()
        except OSError as error:
            raise Rejected(f"{file.source} can't be read: {error.strerror}") from error

    async def _publish_file(self, to: Address, text: str, data: bytes, file: File | Image) -> MessageRef:
        name = getattr(file, "name", "") or Path(file.source).name
        url = f"{self._settings.server}/{to.chat_id}?{file_query(text, name, self._settings)}"
        media_type = file.media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        return await self._publish(to, "PUT", url, data, {"content-type": media_type})

    async def _publish(self, to: Address, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> MessageRef:
        patience = self._settings.file_patience if method == "PUT" else self._settings.patience
        timeouts, headers = self._make_timeouts(patience), {**self._make_headers(), **headers}
        async with (
            _translate_errors(),
            self._pool.request(method, url, body, headers, timeouts, repeats=False) as answer,  # it has no keys
        ):
            await self._check(answer)
            published = read_message(await answer.body(_MAX_ANSWER))
        if not isinstance(published, NtfyMessage):
            raise Unreachable("the answer is not that of an ntfy server")
        return MessageRef(to, published.id)

    async def _check(self, answer: Answer, *, receiving: bool = False) -> None:
        if answer.status != _OK:
            body = await answer.body(_MAX_ANSWER)
            raise to_error(answer.status, body, answer.headers, receiving=receiving)

    def _make_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._settings.token}"} if self._settings.token else {}

    def _make_timeouts(self, patience: timedelta) -> Timeouts:
        return Timeouts(self._settings.patience, patience, patience)


async def _read_messages(answer: Answer) -> Sequence[NtfyMessage]:
    """Return the next messages and signs of life of a stream, at least one."""
    while True:
        async with _translate_errors():
            events = await answer.events()
        if events is None:
            raise Unreachable("the ntfy server ended the stream")
        if messages := list(filter(None, map(read_message, events))):
            return messages


@asynccontextmanager
async def _translate_errors() -> AsyncIterator[None]:
    """Raise `Unreachable` for a failed connection."""
    try:
        yield
    except ProviderError as error:  # of the HTTP client, which model providers share
        raise Unreachable(f"the ntfy server can't be reached: {error}") from error


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the topics of a profile."""
    topics = account.secret("NTFY_TOPIC")
    if not topics:
        raise Refused("ntfy needs a topic. Set it with `talaria config set NTFY_TOPIC <topic>`.")
    settings = read_settings(account.name, account.options, topics, account.secret("NTFY_TOKEN") or "")
    platform = Ntfy(settings, DurableValue(account.store, NTFY_POSITION, account.name))
    account.closing.push_async_callback(platform.close)
    return platform
