"""Encode the growing conversation of a model's requests: what was encoded for one request is reused by the next."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec
from msgspec import Raw

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import Message
from talaria.providers.transcript import RepairedTranscript

W = TypeVar("W")

_encode = msgspec.json.Encoder().encode


class ConversationEncoder(ABC, Generic[W]):
    """Request bodies of one conversation with one account; ``W`` is a message as the protocol writes it.

    Messages are taken in once and only their bytes are kept, except for the last ``LOOSE`` of them, which a later
    message may join or a protocol may mark. The bytes are the same as those of an encoder that sees the whole
    conversation for the first time.
    """

    LOOSE: ClassVar[int] = 1

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._messages: tuple[Message, ...] = ()
        self._repaired = RepairedTranscript(mark)
        self._settled: list[Raw] = []
        self._loose: list[W] = []

    def fresh(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return what has to be taken in; everything, if these messages do not continue the ones taken in before."""
        known = len(self._messages)
        if messages[:known] != self._messages:
            self._restart()
            known = 0
        return messages[known:]

    def take(self, messages: tuple[Message, ...], loaded: Iterable[Message]) -> None:
        """Take in what is `fresh` of ``messages``; ``loaded`` is that part with its attachments loaded."""
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
        """Return the conversation in wire form: bytes that stay as they are, then messages that may change."""
        loose = list(self._loose)
        for message in self._repaired.rest():
            self._append(message, loose)
        return self._settled, loose

    @abstractmethod
    def encode(self, request: ModelRequest) -> bytes:
        """Return the body of a request whose messages were taken in."""

    @abstractmethod
    def _wire(self, message: Message) -> Iterable[W]:
        """Return a repaired message in wire form."""

    def _join(self, last: W | None, new: W) -> Sequence[W]:
        """Return what replaces the last message when a new one comes; neither may be changed in place."""
        return (new,) if last is None else (last, new)

    def _append(self, message: Message, loose: list[W]) -> None:
        for wire in self._wire(message):
            loose[-1:] = self._join(loose[-1] if loose else None, wire)

    def _restart(self) -> None:
        self._repaired = RepairedTranscript(self._mark)
        self._settled, self._loose = [], []
