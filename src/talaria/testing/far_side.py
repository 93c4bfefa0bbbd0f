"""The far side of a network for contract tests, its signed posts, and the selection of tests by its features."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import jwt
from aiohttp import ClientError, ClientSession, ClientTimeout, web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from msgspec import Struct

from talaria.contracts.platform import Platform
from talaria.core.addresses import Address

_PAUSE = 0.02
_TIMEOUT = ClientTimeout(total=30)
Post = tuple[bytes, Mapping[str, str]]  # body and headers
LIFE = 3600  # seconds
FailureKind = Literal["slow_down", "failing", "silent", "deaf", "cut", "revoked"]
Feature = (
    FailureKind
    | Literal[
        "groups",
        "threads",
        "servers",
        "edits",
        "buttons",
        "typing",
        "reactions",
        "files",
        "idempotent",
        "redelivery",
        "backlog",
    ]
)
_Test = TypeVar("_Test")


class WebhookSender:
    """Posts in order; ``make`` returns body and headers for an item, and whether it was tried before.

    ``address`` returns where to post; an empty one means that nobody has registered yet. A sender that ``retries`` not
    posts everything once.
    """

    def __init__(
        self, make: Callable[[object, bool], Post], address: Callable[[], str], *, retries: bool = True
    ) -> None:
        self._retries = retries
        self._make = make
        self._address = address
        self._items: deque[object] = deque()
        self._more = asyncio.Event()
        self._last: object = None
        self.accepted = 0
        self.hangs_up = False

    def add(self, item: object) -> None:
        """Post an item after the others."""
        self._items.append(item)
        self._last = item
        self._more.set()

    def repeat(self) -> None:
        """Post the last item once more, as a network does that missed the answer."""
        self._items.append(self._last)
        self._more.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Post in the background within the block."""
        posting = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            posting.cancel()
            with suppress(asyncio.CancelledError):
                await posting

    async def _run(self) -> None:
        async with ClientSession(timeout=_TIMEOUT) as session:
            while True:
                while not self._items:
                    self._more.clear()
                    await self._more.wait()
                is_again = False
                while not (is_accepted := await self._post(session, self._items[0], is_again=is_again)):
                    if not self._retries:
                        break
                    is_again = True
                    await asyncio.sleep(_PAUSE)  # real time: a network tries again later
                self._items.popleft()
                self.accepted += is_accepted

    async def _post(self, session: ClientSession, item: object, *, is_again: bool) -> bool:
        url = self._address()
        if not url:
            return False
        body, headers = self._make(item, is_again)
        if self.hangs_up:
            self.hangs_up = False
            await self._break_off(url, body, headers)
            return False
        try:
            async with session.post(url, data=body, headers=dict(headers)) as response:
                await response.read()
                return response.status == 200
        except (ClientError, TimeoutError):
            return False

    async def _break_off(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Post, and be gone before the answer."""
        there = urlsplit(url)
        _, writer = await asyncio.open_connection(there.hostname, there.port)
        head = {"host": there.netloc, "content-length": str(len(body)), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"POST {there.path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def serve_application(application: web.Application) -> AsyncIterator[str]:
    """Serve on a free port of this machine, and yield the address."""
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class JwtIssuer:
    """Signs with its newest key; ``fields`` are added to its published keys."""

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        self._fields = dict(fields or {})
        self._number = 0
        self.fetched = 0

    def rotate(self) -> None:
        """Replace the key: tokens are signed with another one, and the old one isn't published any more."""
        self._number += 1

    def key_set(self) -> dict[str, Any]:
        """Return the published keys."""
        self.fetched += 1
        public = RSAAlgorithm.to_jwk(make_rsa_key(self._number).public_key(), as_dict=True)
        return {"keys": [{**public, "kid": self._key_id, "use": "sig", **self._fields}]}

    def sign(self, claims: Mapping[str, Any], *, algorithm: str = "RS256", key_id: str = "") -> str:
        """Return a token that is valid for an hour, unless the claims differ."""
        now = int(time.time())
        full = {"nbf": now, "iat": now, "exp": now + LIFE, **claims}
        key: Any = make_rsa_key(self._number) if algorithm == "RS256" else "a secret of thirty-two characters"
        return jwt.encode(full, key, algorithm=algorithm, headers={"kid": key_id or self._key_id})

    @property
    def _key_id(self) -> str:
        return f"key-{self._number}"


@cache
def make_rsa_key(number: int) -> rsa.RSAPrivateKey:
    """Return a key, the same for all issuers of this process: making one takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class VisibleMessage(Struct, frozen=True, kw_only=True):
    """A message of ours as a person sees it."""

    message_id: str
    text: str
    reply_to: str = ""
    buttons: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class FarSide(Protocol):
    """The other end of a network.

    ``platform`` is the adapter, not connected yet; it gives up on a silent network within a few seconds. ``private`` is
    a chat with one person, ``group`` and ``thread`` are chats with several where the network has them, ``nowhere`` is a
    chat that doesn't exist. ``secret`` is the account's credential.
    """

    platform: Platform
    private: Address
    group: Address | None
    thread: Address | None
    nowhere: Address
    secret: str

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        """Let a person write something, in a group to us or to others."""

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        """Let a person send a document."""

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        """Let a person press a button."""

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        """Let a person react to a message of ours. Called only when ``abilities.reactions``."""

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        """Return our reactions to a message. Called only when ``abilities.reactions``."""

    async def redelivers(self) -> bool:
        """Deliver the last message again before it is confirmed; return whether the network ever does that."""

    async def seen(self, at: Address) -> list[VisibleMessage]:
        """Return our messages in a chat, oldest first."""

    async def disrupt(self, failure: FailureKind) -> bool:
        """Let something go wrong, and return whether that is possible here.

        ``slow_down``: a send is refused with a pause. ``failing``: it fails on their side. ``silent``: it is accepted
        and never answered. ``deaf``: the receiving connection stays open and nothing comes. ``cut``: all connections
        are broken once. ``revoked``: the account is not known any more.
        """

    async def calm(self) -> None:
        """End the disruption that `disrupt` started."""


class WebhookServer(Protocol):
    """A server that calls the adapter; see `FarSide.disrupt` for ``failure``."""

    failure: FailureKind | None

    def hang_up(self) -> None:
        """Break all connections."""


class WebhookFarSide:
    """Common part of the far sides of networks with webhooks."""

    def __init__(self, server: WebhookServer, sender: WebhookSender) -> None:
        self._server = server
        self._sender = sender

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        """Refuse: see `FarSide.reacts`."""
        raise NotImplementedError

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        """Refuse: see `FarSide.own_reactions`."""
        raise NotImplementedError

    async def redelivers(self) -> bool:
        """Post the last message again."""
        self._sender.repeat()
        return True

    async def disrupt(self, failure: FailureKind) -> bool:
        """Let the server or its posts fail."""
        if failure == "cut":
            self._server.hang_up()
            self._sender.hangs_up = True
        else:
            self._server.failure = failure
        return True

    async def calm(self) -> None:
        """End the failure."""
        self._server.failure = None


def needs(*features: Feature) -> Callable[[_Test], _Test]:
    """Mark a test that a network without one of these features leaves out."""

    def mark(test: _Test) -> _Test:
        test.needs = frozenset(features)  # type: ignore[attr-defined] # a function takes any attribute
        return test

    return mark


class SelectedTests:
    """Base of the suites: a class collects the tests of the features that its network has."""

    lacks: ClassVar[frozenset[Feature]] = frozenset()
    tested: ClassVar[frozenset[Feature]] = frozenset()

    def __init_subclass__(cls, lacks: Collection[Feature] = ()) -> None:
        super().__init_subclass__()
        cls.lacks |= frozenset(lacks)
        for name in dir(cls):
            needed: frozenset[Feature] = getattr(getattr(cls, name), "needs", frozenset())
            cls.tested |= needed
            if needed & cls.lacks:
                setattr(cls, name, None)

    async def test_skipped_tests_are_those_of_missing_features(self, far_side: FarSide) -> None:
        """Fail if ``lacks`` and the capabilities differ."""
        abilities = far_side.platform.abilities
        present: Mapping[Feature, bool] = {
            "groups": far_side.group is not None,
            "threads": far_side.thread is not None,
            "servers": abilities.servers,
            "edits": abilities.edits,
            "buttons": abilities.buttons,
            "typing": abilities.typing,
            "reactions": abilities.reactions,
            "files": abilities.file_limit > 0,
            "idempotent": abilities.idempotent,
            "backlog": abilities.backlog,
        }
        missing = {feature for feature, is_present in present.items() if not is_present}
        assert self.lacks & self.tested & present.keys() == missing & self.tested
