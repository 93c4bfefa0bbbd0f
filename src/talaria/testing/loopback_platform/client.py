"""The server side of one client connection of the loopback network."""

import asyncio
from collections.abc import Callable

import msgspec

from talaria.testing.loopback_platform.ledger import Ledger, operation_of
from talaria.testing.loopback_platform.wire import (
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
    Look,
    MakeThread,
    Post,
    React,
    Receive,
    Request,
    Say,
    ShowTyping,
    Upset,
    decode_request,
    line,
)

_HEARTBEAT_SECONDS = 1.0


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
                case Say() | Upset() | Drop() | Look():
                    await self._write(await self._control(request))
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
        fault = self._ledger.trouble(*operation_of(request))
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
        self._ledger.tell()
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
        place = self._ledger.arrivals
        for incoming in list(self._ledger.unconfirmed.values()):
            await self._write(Arrived(incoming))
        while True:
            if self._ledger.trouble("receiving") is not None:
                await asyncio.Event().wait()
            changed = self._ledger.changed
            for incoming in self._ledger.since(place):
                place += 1
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
            self._ledger.tell()

    async def _control(self, request: Say | Upset | Drop | Look) -> Answer:
        match request:
            case Say():
                said = self._ledger.say(request)
                self._ledger.tell()
                return Done(said)
            case Upset(faults, delay):
                self._ledger.faults, self._ledger.delay = list(faults), delay
                self._ledger.tell()
                return Done()
            case Drop():
                self._drop(self._writer)
                return Done()
            case Look(since, patience):
                await self._ledger.recorded(since, patience)
                return Done(records=tuple(self._ledger.records[since:]), id=str(len(self._ledger.unconfirmed)))
