"""The loopback network: a server on this machine, in this process or another, with its client connections."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

import msgspec

from talaria.contracts.platform import Attachment, PlatformCapabilities, Sender
from talaria.core.addresses import Address
from talaria.testing.loopback_platform.adapter import CHATTY, LoopbackPlatform, LoopbackSettings
from talaria.testing.loopback_platform.ledger import Ledger, operation_of
from talaria.testing.loopback_platform.wire import (
    LONGEST_LINE,
    AccountRequest,
    Answer,
    Arrived,
    Beat,
    Confirm,
    Done,
    Drop,
    Edit,
    Failed,
    Fault,
    Fetch,
    Login,
    MakeThread,
    Post,
    React,
    ReadRecords,
    Receive,
    Record,
    Request,
    Say,
    SetFaults,
    ShowTyping,
    decode_request,
    line,
)
from talaria.testing.wait import LIMIT

_HEARTBEAT_SECONDS = 1.0


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
        self._is_open = False

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
        address, person = _to_address(chat, sender), Sender(sender, sender)
        message = Say(address=address, sender=person, text=text, deliveries=deliveries, at=at, addressed=addressed)
        return self._say(message)

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
                address=_to_address(chat, sender),
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
        message = Say(
            address=_to_address(chat, sender),
            sender=Sender(sender, sender),
            button=value,
            reaction=reaction,
            message_id=message_id,
        )
        return self._say(message)

    def shown(self, chat_id: str, thread_id: str = "") -> list[str]:
        """Return the texts of ours that a reader of a chat sees now, oldest first."""
        return [message.text for message in self._ledger.shown(chat_id, thread_id)]

    def disrupt(self, *faults: Fault, delay: float = 0.0) -> None:
        """Let these things go wrong from now on, instead of those before; each answer takes ``delay`` seconds."""
        self._ledger.faults, self._ledger.delay = list(faults), delay
        self._ledger.notify()

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
        self._is_open = True
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=LONGEST_LINE)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._is_open = False
        self._server.close()
        for adapter in self._adapters:
            adapter.close()
        tasks = [task for task in self._clients.values() if task is not None]
        self.drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _say(self, message: Say) -> str:
        external_id = self._ledger.say(message)
        self._ledger.notify()
        return external_id

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:  # it was accepted just before the end
            writer.transport.abort()
            return
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
            self._ledger.notify()


def _to_address(chat: str | Address, sender: str) -> Address:
    return chat if isinstance(chat, Address) else Address("loopback", chat, user_id=sender)


class Client:
    """A connection of an account, or of the controller of the network; ``drop`` disconnects all the others."""

    def __init__(
        self,
        ledger: Ledger,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        drop: Callable[[asyncio.StreamWriter], None],
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._writer = writer
        self._drop = drop
        self._is_logged_in = False

    async def serve(self) -> None:
        """Answer one request after the other until the client hangs up."""
        while request := await self._request():
            match request:
                case Say() | SetFaults() | Drop() | ReadRecords():
                    await self._write(await self._run_control(request))
                case Confirm():
                    pass
                case Receive():
                    await self._answer(request, self._may_receive())
                    if self._writer in self._ledger.receivers:
                        await self._feed()
                        return
                case Login(token):
                    self._is_logged_in = token == self._ledger.token
                    await self._answer(
                        request, None if self._is_logged_in else Failed("bad_credentials", "who is this?")
                    )
                case Post() | Edit() | ShowTyping() | React() | Fetch() | MakeThread():
                    await self._answer(
                        request, None if self._is_logged_in else Failed("bad_credentials", "log in first")
                    )

    async def _request(self) -> Request | None:
        read = await self._reader.readline()
        try:
            return decode_request(read) if read.endswith(b"\n") else None
        except msgspec.DecodeError as error:
            await self._write(Failed("refuse", f"invalid request: {error}"))
            return None

    async def _write(self, answer: Answer) -> None:
        self._writer.write(line(answer))
        await self._writer.drain()

    async def _answer(self, request: Login | AccountRequest, refusal: Failed | None) -> None:
        """Answer a request, unless it is refused or a fault applies."""
        if self._ledger.delay:
            await asyncio.sleep(self._ledger.delay)
        fault = self._ledger.take_fault(*operation_of(request))
        if fault is not None:
            await self._apply_fault(fault, request)
        elif refusal is not None:
            await self._write(refusal)
        else:
            await self._write(self._execute(request))

    def _execute(self, request: Login | AccountRequest) -> Answer:
        if isinstance(request, Login):
            return Done()
        if isinstance(request, Receive):
            self._ledger.receivers.add(self._writer)
        answer = self._ledger.execute(request)
        self._ledger.notify()
        return answer

    async def _apply_fault(self, fault: Fault, request: Login | AccountRequest) -> None:
        match fault.trouble:
            case "hang":
                await asyncio.Event().wait()
            case "disconnect":
                self._writer.transport.abort()
            case "lose_answer":
                self._execute(request)
                self._writer.transport.abort()
            case "delay":
                await asyncio.sleep(fault.seconds)
                await self._write(self._execute(request))
            case trouble:
                await self._write(
                    Failed(trouble, f"{fault.operation}: {trouble}, requested by the test", fault.seconds)
                )

    def _may_receive(self) -> Failed | None:
        if not self._is_logged_in:
            return Failed("bad_credentials", "log in first")
        if self._ledger.abilities.exclusive and self._ledger.receivers:
            return Failed("unreachable", "another connection receives for this account")
        return None

    async def _feed(self) -> None:
        """Send unconfirmed updates, then new ones, until either side disconnects."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._push())
            group.create_task(self._take_confirmations())

    async def _push(self) -> None:
        position = self._ledger.arrivals
        for incoming in list(self._ledger.unconfirmed.values()):
            await self._write(Arrived(incoming))
        while True:
            if self._ledger.take_fault("receiving") is not None:
                await asyncio.Event().wait()
            changed = self._ledger.changed
            for incoming in self._ledger.since(position):
                position += 1
                await self._write(Arrived(incoming))
            try:
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await changed.wait()
            except TimeoutError:
                await self._write(Beat())

    async def _take_confirmations(self) -> None:
        while True:
            request = await self._request()
            if not isinstance(request, Confirm):
                raise ConnectionResetError
            self._ledger.unconfirmed.pop(request.external_id, None)
            self._ledger.notify()

    async def _run_control(self, request: Say | SetFaults | Drop | ReadRecords) -> Answer:
        match request:
            case Say():
                message = self._ledger.say(request)
                self._ledger.notify()
                return Done(message)
            case SetFaults(faults, delay):
                self._ledger.faults, self._ledger.delay = list(faults), delay
                self._ledger.notify()
                return Done()
            case Drop():
                self._drop(self._writer)
                return Done()
            case ReadRecords(since, patience):
                await self._ledger.recorded(since, patience)
                return Done(records=tuple(self._ledger.records[since:]), id=str(len(self._ledger.unconfirmed)))
