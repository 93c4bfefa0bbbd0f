"""The endpoint that a network calls: signature, challenge, limits; a post is answered when it is stored."""

import asyncio
import logging
import mimetypes
import secrets
import shutil
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.platform import Incoming
from talaria.core.errors import PlatformError, Refused
from talaria.platforms.content import safe_file_name
from talaria.platforms.push_receiver import BodyBroken, BodyTooLarge, PushReceiver, PushRequest, PushResponse
from talaria.platforms.signatures import BadSignature

log = logging.getLogger(__name__)

_FILES = "files"
_FILE_LIFE = timedelta(days=1)
_TOKEN_BYTES = 24
_RETRY = PushResponse(HTTPStatus.SERVICE_UNAVAILABLE, headers={"retry-after": "5"})
_REMEMBERED = 5000


class PostRejected(Exception):
    """A rejected post, with a status and a sentence for its sender; ``retry_after`` is when to retry."""

    def __init__(self, status: HTTPStatus, sentence: str, *, retry_after: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after


class BodyReaders:
    """At most ``most`` bodies at once, each within ``reading``.

    One more cancels the oldest body of the address with most of them, so that many slow bodies, which need no signature
    yet, don't keep others from posting.
    """

    def __init__(self, most: int, reading: timedelta) -> None:
        self._most = most
        self._seconds = reading.total_seconds()
        self._addresses: dict[asyncio.Timeout, str] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._addresses)

    async def read(self, request: PushRequest) -> bytes:
        """Return the body of a post; raises `PostRejected` if it is too large, late or broken."""
        try:
            async with self._limit_reading(request.remote):
                return await request.read()
        except BodyTooLarge as error:
            sentence = f"The body may have at most {request.largest} bytes."
            raise PostRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence) from error
        except TimeoutError as error:
            raise PostRejected(HTTPStatus.REQUEST_TIMEOUT, "The body didn't arrive in time.") from error
        except BodyBroken as error:
            raise PostRejected(HTTPStatus.BAD_REQUEST, "The body is incomplete, or its encoding is wrong.") from error

    @asynccontextmanager
    async def _limit_reading(self, address: str) -> AsyncIterator[None]:
        if len(self._addresses) >= self._most:
            self._drop_oldest()
        async with asyncio.timeout(self._seconds) as limit:
            self._addresses[limit] = address
            try:
                yield
            finally:
                self._addresses.pop(limit, None)

    def _drop_oldest(self) -> None:
        (busiest, _), *_ = Counter(self._addresses.values()).most_common(1)
        oldest = next(limit for limit, address in self._addresses.items() if address == busiest)
        del self._addresses[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())


class EndpointSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address that a network calls: ``public_url`` leads to ``host`` and ``port``, including the path.

    A post has at most ``largest`` bytes; its body has ``reading`` to arrive, and it has ``patience`` to be stored
    before the network has to retry. At most ``waiting`` are handled at a time.
    """

    public_url: str
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65_535)]
    largest: Annotated[int, Meta(ge=1024)] = 4 * 1024 * 1024
    waiting: Annotated[int, Meta(ge=1)] = 64
    reading: timedelta = timedelta(seconds=10)
    patience: timedelta = timedelta(seconds=10)

    @property
    def path(self) -> str:
        """Return the path of the public URL, without a slash at its end."""
        return urlsplit(self.public_url).path.rstrip("/") or "/"


def read_endpoint(name: str, options: Mapping[str, str], port: int) -> tuple[EndpointSettings, dict[str, str]]:
    """Return the settings of the endpoint and the other options; raises `Refused` for invalid ones."""
    known = set(EndpointSettings.__struct_fields__)
    given: dict[str, object] = {"port": port, **{key: text for key, text in options.items() if key in known}}
    try:
        settings = msgspec.convert(given, EndpointSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
    if not settings.public_url.startswith(("http://", "https://")):
        raise Refused(f"The option public_url of platforms.{name} must start with http:// or https://.")
    return settings, {key: text for key, text in options.items() if key not in known}


class PublicFiles:
    """Files that a network downloads from us, each for a day at an address that nobody can guess."""

    def __init__(self, folder: Path, public_url: str) -> None:
        self._folder = folder
        self._url = f"{public_url.rstrip('/')}/{_FILES}"

    def publish(self, path: Path, name: str) -> str:
        """Copy a file and return its address."""
        self._remove_old()
        token, safe = secrets.token_urlsafe(_TOKEN_BYTES), safe_file_name(name)
        (self._folder / token).mkdir(0o700, parents=True)
        shutil.copyfile(path, self._folder / token / safe)
        return f"{self._url}/{token}/{quote(safe)}"

    def answer(self, path: str) -> PushResponse:
        """Return the file at a path below that of the endpoint."""
        parts = unquote(path).strip("/").split("/")
        if len(parts) != 3 or parts[0] != _FILES or any(part in {"", ".", ".."} or "\0" in part for part in parts):
            return PushResponse(404)
        file = self._folder / parts[1] / parts[2]
        try:
            data = file.read_bytes()
        except OSError:
            return PushResponse(404)
        media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return PushResponse(200, data, media_type, {"x-content-type-options": "nosniff"})

    def _remove_old(self) -> None:
        oldest = time.time() - _FILE_LIFE.total_seconds()
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


class CatchUp:
    """Search for updates whose posts got lost: at the beginning, and after every ``interval``.

    ``missed`` yields them, and ends when the last one is acknowledged. The latest ids of acknowledged updates are
    remembered, because a network lists what it has posted too.
    """

    def __init__(self, missed: Callable[[], AsyncGenerator[Incoming, None]], interval: timedelta) -> None:
        self.missed = missed
        self.interval = interval
        self._taken: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, external_id: str) -> bool:
        return external_id in self._taken

    def remember(self, external_id: str) -> None:
        """Remember an update that needs nothing more."""
        self._taken[external_id] = None
        while len(self._taken) > _REMEMBERED:
            self._taken.popitem(last=False)


class WebhookEndpoint:
    """Receives the posts of one network.

    ``verify`` raises `BadSignature`, or a `PlatformError` if the network has to retry. ``handshake`` answers a verified
    body by which some networks test the address, and returns ``None`` for others. ``parse`` returns the updates of a
    verified body, and raises `ValueError` for one that is not of this network. ``challenge`` answers a GET by which
    some networks test the address, from its query.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        verify: Callable[[PushRequest, bytes], Awaitable[None] | None],
        parse: Callable[[bytes], Awaitable[Sequence[Incoming]]],
        *,
        handshake: Callable[[bytes], PushResponse | None] | None = None,
        challenge: Callable[[Mapping[str, str]], str | None] | None = None,
        files: PublicFiles | None = None,
        accepted: PushResponse | None = None,
    ) -> None:
        self._settings = settings
        self._verify = verify
        self._parse = parse
        self._handshake = handshake
        self._challenge = challenge
        self._files = files
        self._accepted = accepted or PushResponse()
        self._readers = BodyReaders(settings.waiting, settings.reading)
        self._in_flight = 0

    @asynccontextmanager
    async def connect(self, catch_up: CatchUp | None = None) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Listen and yield updates; a post is answered when the update after its last one is requested.

        ``catch_up`` finds the posts that got lost, for networks that don't repeat them.
        """
        receiver: PushReceiver[Incoming] = PushReceiver(
            self._settings.host, self._settings.port, self._settings.patience
        )

        async def receive(request: PushRequest) -> PushResponse:
            return await self._receive(request, receiver)

        path, largest = self._settings.path, self._settings.largest
        async with (
            receiver.serve(path, receive, largest=largest, answer_get=self._answer_get),
            aclosing(take_pushed(receiver, catch_up)) as updates,
        ):
            log.info("listening at http://%s:%d%s", self._settings.host, self._settings.port, path)
            yield updates

    async def _receive(self, request: PushRequest, receiver: PushReceiver[Incoming]) -> PushResponse:
        try:
            body = await self._readers.read(request)
            if (pending := self._verify(request, body)) is not None:
                await pending
            if self._handshake and (answer := self._handshake(body)) is not None:
                return answer
            stored = await self._store(body, receiver)
        except PostRejected as rejected:
            log.warning("rejected a post: %d, %s", rejected.status, rejected)
            headers = {"retry-after": str(rejected.retry_after)} if rejected.retry_after else {}
            return PushResponse(rejected.status, str(rejected).encode(), headers=headers)
        except BadSignature as error:
            log.warning("rejected a post: the signature is invalid: %s", error)
            return PushResponse(HTTPStatus.UNAUTHORIZED, b"The signature is invalid.")
        except PlatformError as error:
            log.warning("can't verify a post: %s", error)
            return _RETRY
        except ValueError as error:
            log.warning("rejected a post: %s", error)
            return PushResponse(HTTPStatus.BAD_REQUEST, b"The body can't be read.")
        return self._accepted if stored else _RETRY

    async def _store(self, body: bytes, receiver: PushReceiver[Incoming]) -> bool:
        """Hand over the updates in order, and return whether all of them were stored."""
        if self._in_flight >= self._settings.waiting:
            raise PostRejected(HTTPStatus.TOO_MANY_REQUESTS, "Too many pending posts.", retry_after=5)
        self._in_flight += 1
        try:
            for update in await self._parse(body):
                if not await receiver.push(update):
                    return False
        finally:
            self._in_flight -= 1
        return True

    def _answer_get(self, path: str, query: Mapping[str, str]) -> PushResponse:
        """Answer a challenge at the path itself, and requests for files below it."""
        if path.strip("/"):
            return self._files.answer(path) if self._files else PushResponse(404)
        answer = self._challenge(query) if self._challenge else None
        return PushResponse(403) if answer is None else PushResponse(200, answer.encode())


async def take_pushed(
    receiver: PushReceiver[Incoming], catch_up: CatchUp | None = None
) -> AsyncGenerator[Incoming, None]:
    """Yield pushed updates, each acknowledged when the next one is requested, or given back at the end."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        if catch_up is not None and loop.time() >= due:
            async with aclosing(catch_up.missed()) as updates:
                async for update in updates:
                    yield update
                    catch_up.remember(update.external_id)
            due = loop.time() + catch_up.interval.total_seconds()
        pause = timedelta(seconds=max(due - loop.time(), 0)) if catch_up is not None else None
        pushed = await receiver.next_item(pause)
        if pushed is None:
            continue
        try:
            if catch_up is None or pushed.item.external_id not in catch_up:
                yield pushed.item
            pushed.acknowledge(accepted=True)
            if catch_up is not None:
                catch_up.remember(pushed.item.external_id)
        finally:
            pushed.acknowledge(accepted=False)


async def merge_updates(*sources: AsyncIterator[Incoming]) -> AsyncGenerator[Incoming, None]:
    """Yield the updates of several sources; requesting the next one acknowledges the last one to its own source."""
    pending = {asyncio.ensure_future(anext(source)): source for source in sources}
    try:
        while True:
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
                source = pending.pop(task)
                pending[asyncio.ensure_future(anext(source))] = source
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
