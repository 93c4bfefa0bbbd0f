"""The fake gateway: hello, identify, heartbeats, events, and resumed sessions."""

import asyncio
import secrets
import zlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from aiohttp import WSMsgType, web
from msgspec import Struct, field

from talaria.testing.discord_server.channels import Person

MESSAGE_CONTENT = 1 << 15
_HEARTBEAT, _IDENTIFY, _RESUME = 1, 2, 6
_MOST_EVENTS = 1000
_FLUSH = zlib.Z_SYNC_FLUSH


class _Identify(Struct, forbid_unknown_fields=True):
    token: str
    properties: dict[str, str]
    intents: int
    compress: bool = False
    large_threshold: int = 50
    shard: tuple[int, int] | None = None
    presence: dict[str, Any] | None = None


class _Resume(Struct, forbid_unknown_fields=True):
    token: str
    session_id: str
    seq: int


class _Frame(Struct):
    op: int
    d: Any = None


class SentEvent(Struct, frozen=True):
    """An event sent to a session, or to be sent when it resumes."""

    sequence: int
    name: str
    data: Any


class Session(Struct, kw_only=True, eq=False):
    """A session of a bot; it outlives its connections."""

    id: str
    intents: int
    sent_events: list[SentEvent] = field(default_factory=list)
    sequence: int = 0
    wire: "GatewayConnection | None" = None


class GatewayConnection:
    """One connection, with a compressed stream if the client asked for that."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request, *, compressed: bool) -> None:
        self.socket = socket
        self.request = request
        self.heartbeats = 0
        self._compressor = zlib.compressobj() if compressed else None

    async def send(self, frame: dict[str, Any]) -> None:
        """Send a frame, unless the other side has gone."""
        data = msgspec.json.encode(frame)
        try:
            if self._compressor is None:
                await self.socket.send_str(data.decode())
            else:
                await self.socket.send_bytes(self._compressor.compress(data) + self._compressor.flush(_FLUSH))
        except (ConnectionError, RuntimeError):
            return

    def break_off(self) -> None:
        """Let the connection break."""
        if self.request.transport is not None:
            self.request.transport.abort()


class Gateway:
    """All sessions. ``deaf`` keeps connections open without data; ``logins`` records how each started.

    ``public_url`` is the announced address of the server.
    """

    def __init__(self, token: str, me: Person, heartbeat: float) -> None:
        self.token = token
        self.public_url = ""
        self.deaf = False
        self.allows_content = True
        self.starts_left = 999
        self.sessions: list[Session] = []
        self.logins: list[Literal["identify", "resume", "invalid"]] = []
        self.greeting: Callable[[], list[tuple[str, Any]]] = list
        self.changed: Callable[[], None] = lambda: None
        self._me = me
        self._heartbeat = heartbeat
        self._wires: set[GatewayConnection] = set()

    @property
    def url(self) -> str:
        """Return where connections are taken."""
        return f"{self.public_url.replace('http', 'ws', 1)}/gateway"

    async def dispatch(self, name: str, data: Any, bare: Any = None) -> None:
        """Send an event to every session; those that can't read message content get ``bare``."""
        for session in self.sessions:
            shown = data if bare is None or session.intents & MESSAGE_CONTENT else bare
            await self._send_event(session, name, shown)

    async def ask_to_reconnect(self) -> None:
        """Ask everybody to come back over another connection."""
        for wire in list(self._wires):
            await wire.send({"op": 7, "d": None, "s": None, "t": None})

    def expire(self) -> None:
        """Delete all sessions, so that a resumed one is refused as invalid."""
        self.sessions.clear()

    def drop(self) -> None:
        """Break all connections; sessions stay."""
        for wire in list(self._wires):
            wire.break_off()

    async def connected(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one connection until it ends."""
        socket = web.WebSocketResponse(autoping=True)
        await socket.prepare(request)
        wire = GatewayConnection(socket, request, compressed=request.query.get("compress") == "zlib-stream")
        self._wires.add(wire)
        try:
            if request.query.get("v") != "10" or request.query.get("encoding") != "json":
                await socket.close(code=4012)
                return socket
            await self._serve(wire)
        finally:
            self._wires.discard(wire)
            self._end_connection(wire)
        return socket

    async def _serve(self, wire: GatewayConnection) -> None:
        if self.deaf:
            await asyncio.Event().wait()
        await wire.send({"op": 10, "d": {"heartbeat_interval": int(self._heartbeat * 1000)}, "s": None, "t": None})
        async for frame in wire.socket:
            if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            if self.deaf:
                continue
            code = await self._handle_frame(wire, frame.data)
            self.changed()
            if code:
                await wire.socket.close(code=code)

    async def _handle_frame(self, wire: GatewayConnection, data: bytes | str) -> int:
        """Do what a frame asks for; a number is the reason to end the connection."""
        try:
            frame = msgspec.json.decode(data, type=_Frame)
            match frame.op:
                case op if op == _HEARTBEAT:
                    wire.heartbeats += 1
                    await wire.send({"op": 11, "d": None, "s": None, "t": None})
                    return 0
                case op if op == _IDENTIFY:
                    return await self._identify(wire, msgspec.convert(frame.d, _Identify))
                case op if op == _RESUME:
                    return await self._resume(wire, msgspec.convert(frame.d, _Resume))
        except msgspec.DecodeError:
            return 4002
        return 4001

    async def _identify(self, wire: GatewayConnection, request_data: _Identify) -> int:
        if request_data.token != self.token:
            return 4004
        if any(session.wire is wire for session in self.sessions):
            return 4005
        if request_data.intents & MESSAGE_CONTENT and not self.allows_content:
            return 4014
        session = Session(id=secrets.token_hex(16), intents=request_data.intents, wire=wire)
        self.sessions.append(session)
        self.logins.append("identify")
        greetings = self.greeting()
        guilds = [{"id": data["id"], "unavailable": True} for name, data in greetings if name == "GUILD_CREATE"]
        ready = {
            "v": 10,
            "user": self._me.wire(),
            "guilds": guilds,
            "session_id": session.id,
            "resume_gateway_url": self.url,
            "application": {"id": self._me.id, "flags": 0},
        }
        for name, data in [("READY", ready), *greetings]:
            await self._send_event(session, name, data)
        return 0

    async def _resume(self, wire: GatewayConnection, request_data: _Resume) -> int:
        if request_data.token != self.token:
            return 4004
        session = next((one for one in self.sessions if one.id == request_data.session_id), None)
        if session is None:
            self.logins.append("invalid")
            await wire.send({"op": 9, "d": False, "s": None, "t": None})
            return 0
        if request_data.seq > session.sequence:
            return 4007
        session.wire = wire
        self.logins.append("resume")
        for sent_events in session.sent_events:
            if sent_events.sequence > request_data.seq:
                await wire.send({"op": 0, "t": sent_events.name, "s": sent_events.sequence, "d": sent_events.data})
        await self._send_event(session, "RESUMED", {"_trace": []})
        return 0

    async def _send_event(self, session: Session, name: str, data: Any) -> None:
        session.sequence += 1
        session.sent_events = [*session.sent_events, SentEvent(session.sequence, name, data)][-_MOST_EVENTS:]
        if session.wire is not None and not self.deaf:
            await session.wire.send({"op": 0, "t": name, "s": session.sequence, "d": data})

    def _end_connection(self, wire: GatewayConnection) -> None:
        """Keep the session of a lost connection; one that was closed properly ends."""
        for session in list(self.sessions):
            if session.wire is wire:
                session.wire = None
                if wire.socket.close_code in (1000, 1001):
                    self.sessions.remove(session)
