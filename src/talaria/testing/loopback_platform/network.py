"""The loopback network: a server on this machine, in this process or in another."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from talaria.contracts.platform import Attachment, PlatformCapabilities, Sender
from talaria.core.addresses import Address
from talaria.testing.loopback_platform.adapter import CHATTY, LoopbackPlatform, LoopbackSettings
from talaria.testing.loopback_platform.client import Client
from talaria.testing.loopback_platform.ledger import Ledger
from talaria.testing.loopback_platform.wire import LONGEST_LINE, Fault, Record, Say
from talaria.testing.wait import LIMIT


class LoopbackNetwork:
    """A chat network at a free port of loopback; ``async with`` starts and ends it.

    People write through `say`; ``records`` and `shown` return what they got. A network in another process is controlled
    through a `FarSide`.
    """

    def __init__(self, abilities: PlatformCapabilities = CHATTY, *, token: str = "", port: int = 0) -> None:
        self._ledger = Ledger(abilities, token)
        self._port = port
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[object] | None] = {}
        self._adapters: list[LoopbackPlatform] = []

    @property
    def address(self) -> str:
        """Return where to reach it: host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def records(self) -> list[Record]:
        """Everything that was done at the network so far."""
        return self._ledger.records

    @property
    def posts(self) -> list[Record]:
        """The messages that were posted, as they were at first."""
        return [record for record in self.records if record.kind == "post"]

    @property
    def faults(self) -> list[Fault]:
        """The pending faults."""
        return self._ledger.faults

    @property
    def unconfirmed(self) -> int:
        """The number of updates that were not confirmed."""
        return len(self._ledger.unconfirmed)

    @property
    def receivers(self) -> int:
        """Return how many connections receive at this moment."""
        return len(self._ledger.receivers)

    def platform(self, name: str = "loopback", patience: float = 5.0) -> LoopbackPlatform:
        """Return an adapter for it."""
        settings = LoopbackSettings(
            address=self.address,
            abilities=self._ledger.abilities,
            name=name,
            token=self._ledger.token,
            patience=patience,
        )
        self._adapters.append(LoopbackPlatform(settings))
        return self._adapters[-1]

    def say(
        self,
        chat: str | Address,
        text: str,
        *,
        sender: str = "ann",
        deliveries: int = 1,
        at: datetime | None = None,
        addressed: bool = True,
    ) -> str:
        """Let a person write something, delivered so many times, and return its id; ``at`` is now by default."""
        address, person = _chat_address(chat, sender), Sender(sender, sender)
        said = Say(address=address, sender=person, text=text, deliveries=deliveries, at=at, addressed=addressed)
        return self._say(said)

    def say_with_file(
        self,
        chat: str | Address,
        attachment: Attachment,
        data: bytes,
        *,
        text: str = "",
        sender: str = "ann",
        deliveries: int = 1,
    ) -> str:
        """Let a person send a file, delivered so many times, and return the id of the message."""
        return self._say(
            Say(
                address=_chat_address(chat, sender),
                sender=Sender(sender, sender),
                text=text,
                attachments=(attachment,),
                data=(data,),
                deliveries=deliveries,
            )
        )

    def press(
        self, chat: str | Address, message_id: str, value: str = "", *, reaction: str = "", sender: str = "ann"
    ) -> str:
        """Let a person press a button below a message, or react to it, and return its id."""
        said = Say(
            address=_chat_address(chat, sender),
            sender=Sender(sender, sender),
            button=value,
            reaction=reaction,
            message_id=message_id,
        )
        return self._say(said)

    def shown(self, chat_id: str, thread_id: str = "") -> list[str]:
        """Return the texts of ours that a reader of a chat sees now, oldest first."""
        return [message.text for message in self._ledger.shown(chat_id, thread_id)]

    def disrupt(self, *faults: Fault, delay: float = 0.0) -> None:
        """Let these things go wrong from now on, instead of those before; each answer takes ``delay`` seconds."""
        self._ledger.faults, self._ledger.delay = list(faults), delay
        self._ledger.tell()

    def drop(self, but: asyncio.StreamWriter | None = None) -> None:
        """Hang up on everybody."""
        for writer in list(self._clients):
            if writer is not but:
                writer.transport.abort()

    async def until(self, come_true: Callable[[], bool], seconds: float = LIMIT) -> None:
        """Wait until something is true of the network, or raise `TimeoutError`."""
        async with asyncio.timeout(seconds):
            while not come_true():
                await self._ledger.changed.wait()

    async def posted(self, count: int, seconds: float = LIMIT) -> list[Record]:
        """Wait until so many messages were posted, and return them."""
        await self.until(lambda: len(self.posts) >= count, seconds)
        return self.posts

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=LONGEST_LINE)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for adapter in self._adapters:
            adapter.close()
        tasks = [task for task in self._clients.values() if task is not None]
        self.drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _say(self, said: Say) -> str:
        external_id = self._ledger.say(said)
        self._ledger.tell()
        return external_id

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients[writer] = asyncio.current_task()
        try:
            await Client(self._ledger, reader, writer, self.drop).serve()
        except* (OSError, ValueError):
            pass  # the client is gone
        except* asyncio.CancelledError:
            pass  # the network ends; Python 3.11 makes noise about servers whose clients were cancelled
        finally:
            self._ledger.receivers.discard(writer)
            del self._clients[writer]
            writer.transport.abort()
            self._ledger.tell()


def _chat_address(chat: str | Address, sender: str) -> Address:
    return chat if isinstance(chat, Address) else Address("loopback", chat, user_id=sender)
