"""A connection to an XMPP server: TLS, login, keep-alive, and requests with their answers."""

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from xml.etree.ElementTree import Element

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.core.formatting import describe_os_error
from talaria.core.ids import new_id
from talaria.platforms.xmpp.scram import LoginRefused, ScramClient, choose_mechanism, plain_message
from talaria.platforms.xmpp.settings import XmppSettings
from talaria.platforms.xmpp.xml_stream import CLIENT, STREAMS, NotXmpp, StanzaParser, make, serialize

_TLS = "urn:ietf:params:xml:ns:xmpp-tls"
_SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
_BIND = "urn:ietf:params:xml:ns:xmpp-bind"
_STANZA_ERRORS = "urn:ietf:params:xml:ns:xmpp-stanzas"
_PING = "urn:xmpp:ping"
_TEMPORARY = frozenset({
    "internal-server-error", "remote-server-timeout", "remote-server-not-found", "undefined-condition",
})  # fmt: skip
_PAUSE = timedelta(seconds=30)  # of a server that asks for one
_CHUNK = 65536
_CLOSE_SECONDS = 1
_HEADER = (
    "<?xml version='1.0'?><stream:stream to='{domain}' version='1.0' xml:lang='en' "
    f"xmlns='{CLIENT}' xmlns:stream='{STREAMS}'>"
)

log = logging.getLogger(__name__)


class XmppConnection:
    """One connection. ``receive`` gets each message and presence, in their order, and must not wait."""

    def __init__(self, settings: XmppSettings, receive: Callable[[Element], None]) -> None:
        self.jid = settings.jid  # with the resource, once it is open
        self._settings = settings
        self._receive = receive
        self._parser = StanzaParser()
        self._unread: list[Element] = []
        self._requests: dict[str, asyncio.Future[Element]] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self._reader: asyncio.StreamReader
        self._transport: asyncio.Transport | None = None
        self._writer: asyncio.StreamWriter | None = None  # once the connection is encrypted
        self._reading: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether it can be used."""
        return self._reading is not None and not self._failed.done()

    async def open(self) -> None:
        """Connect to the first server of the domain that answers, and log in."""
        settings = self._settings
        try:
            async with asyncio.timeout(settings.patience.total_seconds()):
                await self._connect()
                await self._log_in()
        except TimeoutError as error:
            raise Unreachable(f"the XMPP server of {settings.domain} didn't let us in in time") from error
        except ssl.SSLCertVerificationError as error:
            reason = f"the certificate of {settings.domain} is not trusted: {error.verify_message}"
            raise Unreachable(reason) from error
        except NotXmpp as error:
            raise Unreachable(f"the server of {settings.domain} doesn't speak XMPP: {error}") from error
        except OSError as error:
            raise Unreachable(
                f"the XMPP server of {settings.domain} can't be reached: {describe_os_error(error)}"
            ) from error
        self._reading = asyncio.ensure_future(self._read())
        self._reading.add_done_callback(self._end_reading)

    async def close(self) -> None:
        """End the stream and disconnect; a server that doesn't react is left."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(b"</stream:stream>")
            self._writer.close()
            await self._wait_until_lost()
        self._fail(Unreachable("we closed the connection"))
        await self._wait_until_lost()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def watch(self) -> None:
        """Wait until the connection fails, and raise why."""
        await asyncio.shield(self._failed)

    def fail(self, reason: str) -> Unreachable:
        """Give up the connection, and return the error."""
        error = Unreachable(reason)
        self._fail(error)
        return error

    async def send(self, stanza: Element) -> None:
        """Send a stanza, without a sign that it was processed."""
        if self._writer is None or self._failed.done() or self._writer.is_closing():
            raise Unreachable("the connection to the XMPP server is closed")
        try:
            self._writer.write(serialize(stanza).encode())
            async with asyncio.timeout(self._settings.patience.total_seconds()):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise self.fail(f"the connection to the XMPP server broke: {error}") from error

    async def request(self, kind: str, payload: Element, to: str = "") -> Element:
        """Return the answer to a request; raises the error in it."""
        request_id = new_id()
        answered: asyncio.Future[Element] = asyncio.get_running_loop().create_future()
        self._requests[request_id] = answered
        try:
            await self.send(make(CLIENT, "iq", {"type": kind, "id": request_id, "to": to}, payload))
            async with asyncio.timeout(self._settings.patience.total_seconds()):
                waiting: list[asyncio.Future[Any]] = [answered, self._failed]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise self.fail("the XMPP server doesn't answer") from error
        finally:
            del self._requests[request_id]
        if not answered.done():
            await self.watch()
        answer = answered.result()
        if answer.get("type") == "error":
            raise to_error(answer)
        return answer

    async def ping(self) -> None:
        """Wait until the server has processed everything that was sent before: it does so in order."""
        with suppress(Rejected):  # a server that doesn't know pings has answered nevertheless
            await self.request("get", make(_PING, "ping"), self._settings.domain)

    async def _connect(self) -> None:
        settings = self._settings
        if settings.host:
            servers = [(settings.host, settings.port, settings.direct_tls)]
        else:
            from talaria.platforms.xmpp.servers import find_servers  # noqa: PLC0415 (imports a DNS library)

            servers = await find_servers(settings.domain)
        problem: OSError | None = None
        for host, port, direct_tls in servers:
            try:
                await self._dial(host, port, direct_tls=direct_tls)
            except ssl.SSLError:
                raise
            except OSError as error:
                problem = error
            else:
                return
        raise problem or OSError("DNS names no server")

    async def _dial(self, host: str, port: int, *, direct_tls: bool) -> None:
        loop, name = asyncio.get_running_loop(), self._settings.domain
        protocol = self._make_protocol()
        transport, _ = await loop.create_connection(
            lambda: protocol,
            host,
            port,
            ssl=self._make_tls_context() if direct_tls else None,
            server_hostname=name if direct_tls else None,
        )
        self._transport = transport
        await self._start_stream()
        if not direct_tls:
            protocol = await self._start_tls(transport)
        self._writer = asyncio.StreamWriter(self._transport, protocol, self._reader, loop)

    def _make_protocol(self) -> "_StreamProtocol":
        self._reader = asyncio.StreamReader(_CHUNK, asyncio.get_running_loop())
        return _StreamProtocol(self._reader)

    async def _wait_until_lost(self) -> None:
        if self._transport is not None:
            protocol = self._transport.get_protocol()
            if isinstance(protocol, _StreamProtocol):
                await asyncio.wait([protocol.lost], timeout=_CLOSE_SECONDS)

    def _make_tls_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._settings.ca_file or None)

    async def _start_stream(self) -> None:
        self._parser = StanzaParser()
        self._unread = []
        self._write(_HEADER.format(domain=self._settings.domain))
        self._features = await self._read_element()
        if self._features.tag != f"{{{STREAMS}}}features":
            raise NotXmpp("it offers no features")

    async def _start_tls(self, plain: asyncio.Transport) -> "_StreamProtocol":
        """Encrypt the connection. The new reader gets nothing that was sent before."""
        if self._features.find(f"{{{_TLS}}}starttls") is None:
            raise Unreachable(f"the XMPP server of {self._settings.domain} offers no encryption")
        self._write(serialize(make(_TLS, "starttls")))
        if (await self._read_element()).tag != f"{{{_TLS}}}proceed" or self._unread:
            raise NotXmpp("it refuses encryption")
        protocol = self._make_protocol()
        self._transport = None
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                plain, protocol, self._make_tls_context(), server_hostname=self._settings.domain
            )
        except BaseException:
            plain.abort()
            raise
        assert encrypted is not None
        self._transport = encrypted
        protocol.connection_made(encrypted)
        await self._start_stream()
        return protocol

    def _write(self, xml: str) -> None:
        """Send something during the login."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the server closed the connection")
        self._transport.write(xml.encode())

    async def _log_in(self) -> None:
        settings = self._settings
        offered = {one.text or "" for one in self._features.iter(f"{{{_SASL}}}mechanism")}
        mechanism = choose_mechanism(offered)
        if not mechanism:
            raise BadCredentials("the XMPP server offers no login with a password")
        scram = ScramClient(mechanism, settings.user, settings.password) if mechanism != "PLAIN" else None
        first = scram.start() if scram else plain_message(settings.user, settings.password)
        self._write(serialize(_make_sasl("auth", first, {"mechanism": mechanism})))
        answer = await self._read_element()
        try:
            if scram and answer.tag == f"{{{_SASL}}}challenge":
                proof = await asyncio.to_thread(scram.respond, _decode(answer))
                self._write(serialize(_make_sasl("response", proof)))
                answer = await self._read_element()
            if answer.tag != f"{{{_SASL}}}success":
                raise _to_login_error(answer)
            if scram:
                scram.verify(_decode(answer))
        except LoginRefused as error:
            raise BadCredentials(f"the XMPP server isn't trusted with the account: {error}") from error
        await self._start_stream()
        await self._bind()

    async def _bind(self) -> None:
        request = make(CLIENT, "iq", {"type": "set", "id": "bind"}, make(_BIND, "bind"))
        self._write(serialize(request))
        answer = await self._read_element()
        if answer.get("type") == "error":
            raise to_error(answer)
        self.jid = answer.findtext(f"{{{_BIND}}}bind/{{{_BIND}}}jid") or ""
        if self.jid.partition("/")[0] != self._settings.jid:
            raise NotXmpp("it doesn't say who we are")

    async def _read_element(self) -> Element:
        """Return the next element during the login."""
        while not self._unread:
            data = await self._reader.read(_CHUNK)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._unread = self._parser.feed(data)
        element = self._unread.pop(0)
        if element.tag == f"{{{STREAMS}}}error":
            raise _to_stream_error(element)
        return element

    async def _read(self) -> None:
        """Read stanzas until the connection fails; a silent server is asked for a sign of life first."""
        asked = False
        half = self._settings.silence.total_seconds() / 2
        try:
            while True:
                try:
                    async with asyncio.timeout(half):
                        data = await self._reader.read(_CHUNK)
                except TimeoutError:
                    if asked:
                        raise Unreachable("the XMPP server has been silent for too long") from None
                    asked = True
                    ping = make(CLIENT, "iq", {"type": "get", "id": new_id()}, make(_PING, "ping"))
                    await self.send(ping)
                    continue
                asked = False
                if not data:
                    raise Unreachable("the XMPP server closed the connection")
                for stanza in self._parser.feed(data):
                    await self._handle(stanza)
                if self._parser.is_closed:
                    raise Unreachable("the XMPP server ended the stream")
        except PlatformError as error:
            self._fail(error)
        except NotXmpp as error:
            self._fail(Unreachable(f"the server sent something that is no XMPP: {error}"))
        except OSError as error:
            self._fail(Unreachable(f"the connection to the XMPP server broke: {error}"))

    def _end_reading(self, reading: asyncio.Future[None]) -> None:
        """Give up a connection that sent stanzas which we can't process."""
        if not reading.cancelled() and (error := reading.exception()):
            log.error("xmpp: a stanza can't be processed", exc_info=error)
            self._fail(Unreachable(f"the server sent something that can't be processed: {error!r}"))

    async def _handle(self, stanza: Element) -> None:
        if stanza.tag == f"{{{STREAMS}}}error":
            raise _to_stream_error(stanza)
        if stanza.tag != f"{{{CLIENT}}}iq":
            self._receive(stanza)
        elif stanza.get("type") in ("result", "error"):
            answered = self._requests.get(stanza.get("id", ""))
            if answered is not None and not answered.done():
                answered.set_result(stanza)
        else:
            await self._answer(stanza)

    async def _answer(self, request: Element) -> None:
        """Answer a request of the server or of another client: pings, and nothing else."""
        about = {"id": request.get("id", ""), "to": request.get("from", "")}
        if request.find(f"{{{_PING}}}ping") is not None:
            await self.send(make(CLIENT, "iq", {"type": "result", **about}))
        else:
            problem = make(CLIENT, "error", {"type": "cancel"}, make(_STANZA_ERRORS, "service-unavailable"))
            await self.send(make(CLIENT, "iq", {"type": "error", **about}, problem))

    def _fail(self, error: PlatformError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


class _StreamProtocol(asyncio.StreamReaderProtocol):
    """A protocol of asyncio that says when its connection has ended."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(reader, loop=loop)
        self.lost: asyncio.Future[None] = loop.create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember the end of the connection."""
        super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)


def error_condition(stanza: Element) -> str:
    """Return the name of the error in a stanza."""
    conditions = (one.tag for one in stanza.findall(f"{{{CLIENT}}}error/*"))
    names = [tag.rpartition("}")[2] for tag in conditions if tag.startswith(f"{{{_STANZA_ERRORS}}}")]
    return next((name for name in names if name != "text"), "undefined-condition")


def to_error(stanza: Element) -> PlatformError:
    """Return the error in a stanza."""
    condition = error_condition(stanza)
    problem = stanza.find(f"{{{CLIENT}}}error")
    text = (stanza.findtext(f"{{{CLIENT}}}error/{{{_STANZA_ERRORS}}}text") or "").strip()
    reason = f"{condition}: {text}" if text else condition
    if condition in _TEMPORARY:
        return Unreachable(f"the XMPP server has problems: {reason}")
    if problem is not None and problem.get("type") == "wait":
        return SlowDown(f"the XMPP server asks for a pause: {reason}", retry_after=_PAUSE)
    return Rejected(f"the XMPP server refused: {reason}")


def _to_stream_error(element: Element) -> PlatformError:
    condition = _strip_namespace(element[0]) if len(element) else "undefined-condition"
    if condition == "host-unknown":
        return BadCredentials("the XMPP server doesn't serve the domain of the account")
    return Unreachable(f"the XMPP server ended the stream: {condition}")


def _to_login_error(failure: Element) -> PlatformError:
    condition = _strip_namespace(failure[0]) if len(failure) else "not-authorized"
    if condition == "temporary-auth-failure":
        return Unreachable("the XMPP server can't check passwords right now")
    return BadCredentials(f"the XMPP server doesn't accept account and password: {condition}")


def _make_sasl(name: str, message: bytes, attributes: dict[str, str] | None = None) -> Element:
    return make(_SASL, name, attributes, base64.b64encode(message).decode())


def _decode(element: Element) -> bytes:
    try:
        return base64.b64decode(element.text or "", validate=True)
    except binascii.Error as error:
        raise LoginRefused("the server sent something that can't be read") from error


def _strip_namespace(element: Element) -> str:
    return element.tag.rpartition("}")[2]
