"""Encode the growing conversation of model requests, reusing the bytes of earlier ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec
from msgspec import Raw

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import Message
from talaria.providers.base.transcript import RepairedTranscript

W = TypeVar("W")

_encode = msgspec.json.Encoder().encode


class ConversationEncoder(ABC, Generic[W]):
    """Encodes the requests of one conversation with one account; ``W`` is the wire type of a message.

    Messages are added once and only their bytes are kept, except for the last ``LOOSE`` of them, which a later message
    may join or a protocol may mark. The bytes equal those of an encoder that sees the whole conversation for the first
    time.
    """

    LOOSE: ClassVar[int] = 1

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._messages: tuple[Message, ...] = ()
        self._repaired = RepairedTranscript(mark)
        self._settled: list[Raw] = []
        self._loose: list[W] = []

    def fresh(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages to add; all of them if they don't continue the earlier ones."""
        known = len(self._messages)
        if messages[:known] != self._messages:
            self._restart()
            known = 0
        return messages[known:]

    def take(self, messages: tuple[Message, ...], loaded: Iterable[Message]) -> None:
        """Add the `fresh` part of ``messages``; ``loaded`` is that part with its attachments loaded."""
        self._messages = messages
        for message in loaded:
            self._repaired.add(message)
        for message in self._repaired.take_final():
            self._append(message, self._loose)
        surplus = len(self._loose) - self.LOOSE
        if surplus > 0:
            self._settled += [Raw(_encode(wire)) for wire in self._loose[:surplus]]
            del self._loose[:surplus]

    def wire_messages(self) -> tuple[list[Raw], list[W]]:
        """Return the conversation in wire form: fixed bytes, then messages that may change."""
        loose = list(self._loose)
        for message in self._repaired.rest():
            self._append(message, loose)
        return self._settled, loose

    @abstractmethod
    def encode(self, request: ModelRequest) -> bytes:
        """Return the body of a request whose messages were added."""

    @abstractmethod
    def _wire(self, message: Message) -> Iterable[W]:
        """Return a repaired message in wire form."""

    def _join(self, last: W | None, new: W) -> Sequence[W]:
        """Return the replacement of the last message when a new one comes; neither is changed in place."""
        return (new,) if last is None else (last, new)

    def _append(self, message: Message, loose: list[W]) -> None:
        for wire in self._wire(message):
            loose[-1:] = self._join(loose[-1] if loose else None, wire)

    def _restart(self) -> None:
        self._repaired = RepairedTranscript(self._mark)
        self._settled, self._loose = [], []
