"""The fake Socket Mode: each envelope goes to one connection, and again until it is acknowledged."""

import asyncio
import json
from typing import Any

from aiohttp import WSMsgType, web
from msgspec import Struct

from talaria.core.ids import new_id


class Envelope(Struct):
    """An envelope to deliver; ``attempts`` counts deliveries, ``to`` is the current connection."""

    kind: str
    payload: dict[str, Any]
    id: str
    attempts: int = 0
    to: object = None
    acknowledged: bool = False


class Connection(Struct, frozen=True):
    """A WebSocket and its transport."""

    socket: web.WebSocketResponse
    request: web.Request


class SocketModeHub:
    """Delivers envelopes. ``handed`` has all of them, ``complaints`` the client's protocol violations.

    ``forget_tickets`` prevents new connections.
    """

    def __init__(self) -> None:
        self.handed: list[Envelope] = []
        self.complaints: list[str] = []
        self.deaf = False
        self.forget_tickets = False
        self._tickets: set[str] = set()
        self._stale: set[str] = set()
        self._connections: list[Connection] = []
        self._turn = 0

    @property
    def connections(self) -> int:
        """Return how many listen."""
        return len(self._connections)

    def ticket(self) -> str:
        """Return what a connection is opened with, once."""
        ticket = new_id()
        self._tickets.add(ticket)
        return ticket

    async def post(self, kind: str, payload: dict[str, Any]) -> Envelope:
        """Deliver an envelope, now or to the next client that connects."""
        envelope = Envelope(kind, payload, new_id())
        self.handed.append(envelope)
        await self._hand_over()
        return envelope

    async def repeat(self, envelope: Envelope) -> Envelope:
        """Deliver the same envelope again, as Slack does without a timely acknowledgement."""
        again = Envelope(envelope.kind, envelope.payload, new_id(), attempts=envelope.attempts)
        self.handed.append(again)
        await self._hand_over()
        return again

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Speak with a client until it hangs up."""
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets or self.forget_tickets:
            return web.Response(status=408)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        connection = Connection(socket, request)
        hello = {"type": "hello", "num_connections": self.connections + 1, "connection_info": {"app_id": "A0TALARIA"}}
        await socket.send_json(hello)
        self._connections.append(connection)
        try:
            await self._hand_over()
            async for message in socket:
                if self.deaf:
                    await asyncio.Event().wait()
                if message.type == WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type == WSMsgType.TEXT:
                    self._handle_message(message.data)
        finally:
            self._forget(connection)
            await self._hand_over()
        return socket

    async def ask_to_move(self) -> None:
        """Ask every client to reconnect, as Slack does every few hours."""
        for connection in list(self._connections):
            self._forget(connection)
            await connection.socket.send_json({"type": "disconnect", "reason": "refresh_requested"})

    def drop(self) -> None:
        """Drop undelivered envelopes, as Slack does after some minutes."""
        for envelope in self.handed:
            envelope.acknowledged = True

    def cut(self) -> None:
        """Break all connections."""
        for connection in list(self._connections):
            self._forget(connection)
            if connection.request.transport is not None:
                connection.request.transport.abort()

    def leave(self) -> None:
        """Forget all clients without a word: they stay connected, and hear nothing any more."""
        self.deaf = True
        for connection in list(self._connections):
            self._forget(connection)

    def _handle_message(self, data: str) -> None:
        acknowledgement = json.loads(data)
        if acknowledgement.get("envelope_id") in self._stale:
            return
        found = next((one for one in self.handed if one.id == acknowledgement.get("envelope_id")), None)
        if found is None or set(acknowledgement) - {"envelope_id", "payload"}:
            self.complaints.append(f"what is {data}?")
        elif found.acknowledged:
            self.complaints.append(f"acknowledged twice: {found.payload}")
        else:
            found.acknowledged = True

    def _forget(self, connection: Connection) -> None:
        self._connections = [one for one in self._connections if one is not connection]
        for envelope in self.handed:
            if envelope.to is connection and not envelope.acknowledged:
                envelope.to = None
                self._stale.add(envelope.id)  # of no use to anybody who acknowledges it through another connection
                envelope.id = new_id()

    async def _hand_over(self) -> None:
        if self.deaf:
            return
        for envelope in self.handed:
            if envelope.to is not None or envelope.acknowledged or not self._connections:
                continue
            self._turn += 1
            connection = self._connections[self._turn % len(self._connections)]
            envelope.to = connection
            envelope.attempts += 1
            await connection.socket.send_json(_envelope_to_wire(envelope))


def _envelope_to_wire(envelope: Envelope) -> dict[str, Any]:
    written: dict[str, Any] = {
        "envelope_id": envelope.id,
        "type": envelope.kind,
        "payload": envelope.payload,
        "accepts_response_payload": envelope.kind != "events_api",
    }
    if envelope.kind == "events_api":
        again = envelope.attempts > 1
        written |= {"retry_attempt": envelope.attempts - 1, "retry_reason": "timeout" if again else ""}
    return written
