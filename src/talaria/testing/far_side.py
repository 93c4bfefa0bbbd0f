"""The far side of a network for contract tests, and the selection of tests by the network's features."""

from collections.abc import Callable, Collection, Mapping
from typing import ClassVar, Literal, Protocol, TypeVar

from msgspec import Struct

from talaria.contracts.platform import Platform
from talaria.core.addresses import Address
from talaria.testing.webhook_sender import WebhookSender

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
        """Let a person put a mark on a message of ours. Called only when ``abilities.reactions``."""

    async def marks(self, at: Address, message_id: str) -> list[str]:
        """Return the marks that we have put on a message. Called only when ``abilities.reactions``."""

    async def redelivers(self) -> bool:
        """Deliver the last message again before it is confirmed; return whether the network ever does that."""

    async def seen(self, at: Address) -> list[VisibleMessage]:
        """Return our messages in a place, oldest first."""

    async def disrupt(self, trouble: FailureKind) -> bool:
        """Let something go wrong, and return whether that is possible here.

        ``slow_down``: a send is refused with a pause. ``failing``: it fails on their side. ``silent``: it is accepted
        and never answered. ``deaf``: the receiving connection stays open and nothing comes. ``cut``: all connections
        are broken once. ``revoked``: the account is not known any more.
        """

    async def calm(self) -> None:
        """End the disruption that `disrupt` started."""


class WebhookServer(Protocol):
    """A server that calls the adapter; see `FarSide.disrupt` for ``trouble``."""

    trouble: FailureKind | None

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

    async def marks(self, at: Address, message_id: str) -> list[str]:
        """Refuse: see `FarSide.marks`."""
        raise NotImplementedError

    async def redelivers(self) -> bool:
        """Post the last message again."""
        self._sender.repeat()
        return True

    async def disrupt(self, trouble: FailureKind) -> bool:
        """Let the server or its posts fail."""
        if trouble == "cut":
            self._server.hang_up()
            self._sender.hangs_up = True
        else:
            self._server.trouble = trouble
        return True

    async def calm(self) -> None:
        """End the trouble."""
        self._server.trouble = None


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

    async def test_the_features_that_are_left_out_are_those_that_are_missing(self, far_side: FarSide) -> None:
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
