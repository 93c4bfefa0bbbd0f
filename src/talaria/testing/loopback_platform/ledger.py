"""The state of the loopback network: messages, posts, and planned faults."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import structs

from talaria.contracts.platform import Incoming, PlatformCapabilities
from talaria.core.addresses import Address
from talaria.testing.loopback_platform.wire import (
    AccountRequest,
    Done,
    Edit,
    Failed,
    Fault,
    Fetch,
    Login,
    MakeThread,
    Operation,
    Post,
    React,
    Receive,
    Record,
    Say,
    ShowTyping,
)

_UNITS: dict[str, Callable[[str], int]] = {
    "characters": len,
    "utf16": lambda text: len(text.encode("utf-16-le")) // 2,
    "bytes": lambda text: len(text.encode()),
}


class Ledger:
    """One account on the network, on the server side."""

    def __init__(self, abilities: PlatformCapabilities, token: str = "") -> None:
        self.abilities = abilities
        self.token = token
        self.records: list[Record] = []
        self.unconfirmed: dict[str, Incoming] = {}
        self.faults: list[Fault] = []
        self.delay = 0.0
        self.receivers: set[asyncio.StreamWriter] = set()
        self.changed = asyncio.Event()
        self._deliveries: list[Incoming] = []
        self._keys: dict[str, str] = {}
        self._messages: dict[tuple[str, str], Record] = {}
        self._files: dict[str, bytes] = {}
        self._incoming_by_id: set[tuple[str, str]] = set()
        self._numbers = 0

    def say(self, message: Say) -> str:
        """Let something arrive for the account and return its id."""
        external_id = message.external_id or self._make_id()
        for attachment, data in zip(message.attachments, message.data, strict=True):
            self._files[attachment.reference] = data
        incoming = Incoming(
            external_id=external_id,
            address=message.address,
            sender=message.sender,
            at=message.at or datetime.now(UTC),
            text=message.text,
            attachments=message.attachments,
            message_id=message.message_id or external_id,
            reply_to=message.reply_to,
            chat_name=message.address.chat_id,
            addressed=message.addressed,
            button=message.button,
            reaction=message.reaction,
            edited=message.edited,
            formerly=message.formerly,
        )
        self.unconfirmed[external_id] = incoming
        self._incoming_by_id.add((message.address.chat_id, incoming.message_id))
        self._deliveries += [incoming] * message.deliveries
        return external_id

    def notify(self) -> None:
        """Wake the tasks that wait for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def recorded(self, since: int, patience: float) -> None:
        """Wait until there is a record of this number, so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while len(self.records) <= since:
                    await self.changed.wait()

    @property
    def arrivals(self) -> int:
        """Return how many deliveries there have been."""
        return len(self._deliveries)

    def since(self, position: int) -> list[Incoming]:
        """Return what arrived from this delivery on."""
        return self._deliveries[position:]

    def take_fault(self, operation: Operation, chat_id: str = "") -> Fault | None:
        """Return what goes wrong with this deed now, and count it as gone wrong."""
        for position, fault in enumerate(self.faults):
            if fault.operation == operation and fault.chat_id in ("", chat_id):
                if fault.times == 1:
                    del self.faults[position]
                elif fault.times:
                    self.faults[position] = structs.replace(fault, times=fault.times - 1)
                self.notify()
                return fault
        return None

    def shown(self, chat_id: str, thread_id: str = "") -> list[Record]:
        """Return the messages that a reader of a chat sees now, oldest first."""
        return [
            message
            for (chat, _), message in self._messages.items()
            if (chat, message.address.thread_id) == (chat_id, thread_id)
        ]

    def execute(self, request: AccountRequest) -> Done | Failed:
        """Do what the account asks for."""
        match request:
            case Post():
                return self._post(request)
            case Edit():
                return self._edit(request)
            case ShowTyping(address):
                self._record("typing", address)
                return Done()
            case React(address, message_id, emoji):
                message_key = address.chat_id, message_id
                if not self.abilities.reactions or message_key not in {*self._messages, *self._incoming_by_id}:
                    return Failed("refuse", "this message cannot be marked")
                self._record("reaction", address, message_id=message_id, text=emoji)
                return Done()
            case Fetch(reference):
                data = self._files.get(reference)
                return Failed("refuse", "there is no such file") if data is None else Done(data=data)
            case MakeThread(chat_id, name):
                if not self.abilities.threads:
                    return Failed("refuse", "there are no threads here")
                thread_id_made = self._make_id()
                self._record("thread", Address("", chat_id, "thread", thread_id_made), text=name)
                return Done(thread_id_made)
            case Receive():
                return Done()

    def _post(self, post: Post) -> Done | Failed:
        problem = self._find_text_problem(post.text) or self._find_excess(post)
        if problem:
            return problem
        known = self._keys.get(post.key) if self.abilities.idempotent else None
        message_id = known or self._make_id()
        self._keys[post.key] = message_id
        record = self._record(
            "repeat" if known else "post",
            post.address,
            message_id=message_id,
            text=post.text,
            key=post.key,
            reply_to=post.reply_to,
            buttons=post.buttons,
            files=tuple(file.name for file in post.files),
        )
        if not known:
            self._messages[post.address.chat_id, message_id] = record
        return Done(message_id)

    def _edit(self, edit: Edit) -> Done | Failed:
        message_key = edit.address.chat_id, edit.message_id
        if not self.abilities.edits or message_key not in self._messages:
            return Failed("refuse", "this message cannot be edited")
        problem = self._find_text_problem(edit.text)
        if problem:
            return problem
        self._record("edit", edit.address, message_id=edit.message_id, text=edit.text, buttons=edit.buttons)
        self._messages[message_key] = structs.replace(self._messages[message_key], text=edit.text, buttons=edit.buttons)
        return Done(edit.message_id)

    def _find_text_problem(self, text: str) -> Failed | None:
        if _UNITS[self.abilities.text_unit](text) > self.abilities.text_limit:
            return Failed("refuse", "the message is too long")
        return None

    def _find_excess(self, post: Post) -> Failed | None:
        if any(len(file.data) > self.abilities.file_limit for file in post.files):
            return Failed("refuse", "the file is too large")
        if not post.text.strip() and not post.files:
            return Failed("refuse", "the message is empty")
        return None

    def _record(self, kind: str, address: Address, **what: object) -> Record:
        entry = {"number": len(self.records), "kind": kind, "at": time.time(), "address": address, **what}
        record = Record(**entry)  # type: ignore[arg-type]
        self.records.append(record)
        return record

    def _make_id(self) -> str:
        self._numbers += 1
        return str(self._numbers)


def operation_of(request: Login | AccountRequest) -> tuple[Operation, str]:
    """Return what a request is about: the name by which it goes wrong, and the chat."""
    match request:
        case Login():
            return "login", ""
        case Receive():
            return "receive", ""
        case Post(address=address):
            return "post", address.chat_id
        case Edit(address=address):
            return "edit", address.chat_id
        case ShowTyping(address):
            return "typing", address.chat_id
        case React(address):
            return "react", address.chat_id
        case Fetch():
            return "fetch", ""
        case MakeThread(chat_id):
            return "thread", chat_id
