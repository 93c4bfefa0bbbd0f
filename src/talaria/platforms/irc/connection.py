"""A connection to an IRC server: registration, SASL, keep-alive, flood limit, and requests with their answers."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.core.formatting import describe_os_error
from talaria.platforms.irc.settings import IrcSettings
from talaria.platforms.irc.wire import (
    IrcMessage,
    ReceivedLine,
    fold,
    other_nick,
    parse_line,
    read_network,
    read_privmsg,
    sasl_lines,
    split_message,
)

_WANTED = frozenset({"message-tags", "account-tag", "server-time", "sasl"})
_LONGEST_LINE = 16 * 1024  # bytes: tags are up to 8 KB
_LONGEST_HOLD = 4.0  # seconds that a message waits for the flood limit; beyond it, others go first
_MOST_NICKS = 9
_NICK_TAKEN = frozenset({"433", "436", "437"})
_SASL_FAILED = frozenset({"902", "904", "905", "906", "908"})
_REFUSED_LOGIN = {"432": "the nick is not allowed on this server", "464": "the server password is wrong",
                  "465": "the server has banned us"}  # fmt: skip
_REFUSED_SEND = frozenset({
    "401", "402", "403", "404", "405", "407", "411", "412", "413", "414", "415", "416", "442", "471", "473", "474",
    "475", "476", "477", "486", "489", "520", "531", "716",
})  # fmt: skip

log = logging.getLogger(__name__)


class LineBucket:
    """The flood limit: ``burst`` lines at once, then so many per second."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._used_until = 0.0  # when everything sent so far is paid for

    def delay(self) -> float:
        """Return the seconds until the next line may be sent."""
        now = asyncio.get_running_loop().time()
        return max(self._used_until - now - (self._burst - 1) / self._per_second, 0.0)

    async def take(self) -> None:
        """Wait until a line may be sent, and count it; one caller at a time."""
        await asyncio.sleep(self.delay())
        self._used_until = max(self._used_until, asyncio.get_running_loop().time()) + 1 / self._per_second


class IrcConnection:
    """One connection. ``receive`` stores what people write; no later line is read until it has.

    ``network`` is the name that the server announces for its network, else its host. ``receives_channels`` is off for
    a connection that only sends: another one receives what is said in channels.
    """

    def __init__(self, settings: IrcSettings, receive: Callable[[Sequence[ReceivedLine]], Awaitable[None]]) -> None:
        self.nick = settings.nick
        self.receives_channels = False
        self.joined: set[str] = set()
        self.network = settings.host
        self._settings = settings
        self._receive = receive
        self._bucket = LineBucket(settings.lines_per_second, settings.burst)
        self._capabilities: set[str] = set()
        self._offered: set[str] = set()
        self._tokens = count(1)
        self._asking = asyncio.Lock()
        self._answers: list[IrcMessage] = []
        self._fence: tuple[str, asyncio.Future[None]] | None = None
        self._registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self._registered.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Future[None] | None = None
        self._nick_attempts = 0

    @property
    def is_open(self) -> bool:
        """Return whether it can be used."""
        return self._writer is not None and not self._failed.done()

    async def open(self) -> None:
        """Connect and log in."""
        settings = self._settings
        try:
            async with asyncio.timeout(settings.patience.total_seconds()):
                self._reader, self._writer = await asyncio.open_connection(
                    settings.host, settings.port, ssl=self._make_tls_context(), limit=_LONGEST_LINE
                )
                self._reading = asyncio.ensure_future(self._read())
                self._reading.add_done_callback(self._end_reading)
                if settings.server_password:
                    self._write(f"PASS {settings.server_password}")
                for line in ("CAP LS 302", f"NICK {self.nick}", f"USER {settings.nick[:9]} 0 * :{settings.real_name}"):
                    self._write(line)
                await self._registered
        except TimeoutError as error:
            raise Unreachable(f"{settings.host} didn't let us in in time") from error
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"the certificate of {settings.host} is not trusted: {error.verify_message}") from error
        except OSError as error:
            raise Unreachable(
                f"{settings.host}:{settings.port} can't be reached: {describe_os_error(error)}"
            ) from error

    async def close(self) -> None:
        """Say goodbye and disconnect."""
        if self._writer is not None:
            with suppress(OSError, Unreachable):
                self._write("QUIT :")
                async with asyncio.timeout(1):
                    await self._writer.drain()
            self._writer.close()
        self._fail(Unreachable("we closed the connection"))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def watch(self) -> None:
        """Wait until the connection fails, and raise why."""
        await asyncio.shield(self._failed)

    async def join(self, channel: str) -> None:
        """Join a channel if we aren't there; raises `Rejected` if that is refused."""
        if fold(channel) in self.joined:
            return
        key = self._settings.keys.get(channel, "")
        answers = await self.ask([f"JOIN {channel} {key}".rstrip()])
        if fold(channel) not in self.joined:
            self._raise_refusal(answers, channel)
            raise Rejected(f"{channel} can't be joined")

    async def say(self, target: str, text: str, command: str = "PRIVMSG") -> None:
        """Send a message to a nick or channel, and return when the server has taken it."""
        if (delay := self._bucket.delay()) > _LONGEST_HOLD:
            pause = timedelta(seconds=delay)
            raise SlowDown("the flood limit of the server is reached", retry_after=pause, everywhere=True)
        lines = split_message(text, self.nick, target)
        answers = await self.ask([f"{command} {target} :{line}" for line in lines])
        self._raise_refusal(answers, target)

    async def account_of(self, nick: str) -> tuple[str, str] | None:
        """Return account and ``user@host`` of a nick; the account is empty without login, ``None`` if nobody has it."""
        account, mask = "", ""
        for answer in await self.ask([f"WHOIS {nick}"]):
            if len(answer.params) < 3 or fold(answer.params[1]) != fold(nick):
                continue
            match answer.command:
                case "311" if len(answer.params) > 3:
                    mask = f"{answer.params[2]}@{answer.params[3]}"
                case "330":
                    account = answer.params[2]
                case "307":  # the nick itself is registered, and its owner has identified
                    account = account or answer.params[1]
        return (account, mask) if mask else None

    async def ask(self, lines: Sequence[str]) -> list[IrcMessage]:
        """Send lines, and return the numeric answers; raises `Unreachable` without a sign that they were processed.

        Servers process lines in order, so the answer to a final ``PING`` follows all others.
        """
        async with self._asking:
            token = f"fence{next(self._tokens)}"
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._answers, self._fence = [], (token, answered)
            try:
                for line in lines:
                    await self._bucket.take()
                    self._write(line)
                self._write(f"PING :{token}")
                async with asyncio.timeout(self._settings.patience.total_seconds()):
                    await asyncio.wait([answered, self._failed], return_when=asyncio.FIRST_COMPLETED)
            except TimeoutError as error:
                self._fail(Unreachable("the IRC server doesn't answer"))
                raise Unreachable("the IRC server doesn't answer") from error
            finally:
                self._fence = None
            if not answered.done():
                await self.watch()
            return self._answers

    def _make_tls_context(self) -> ssl.SSLContext | None:
        settings = self._settings
        if not settings.tls:
            return None
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.certificate:
            try:
                context.load_cert_chain(settings.certificate)
            except ssl.SSLError as error:
                raise BadCredentials(f"{settings.certificate} has no usable certificate with its key") from error
        return context

    def _write(self, line: str) -> None:
        if self._writer is None or self._failed.done():
            raise Unreachable("the connection is closed")
        self._writer.write(line.encode(errors="replace").replace(b"\r", b" ").replace(b"\n", b" ") + b"\r\n")

    def _fail(self, error: PlatformError) -> None:
        for future in (self._registered, self._failed):
            if not future.done():
                future.set_exception(error)
        if self._writer is not None:
            self._writer.close()

    async def _read(self) -> None:
        """Read lines until the connection fails; a silent server is asked for a sign of life first."""
        unfinished, asked = b"", False
        half = self._settings.silence.total_seconds() / 2
        try:
            while True:
                try:
                    async with asyncio.timeout(half):
                        data = await self._reader.read(_LONGEST_LINE)
                except TimeoutError:
                    if asked:
                        raise Unreachable("the IRC server has been silent for too long") from None
                    asked = True
                    self._keep_alive()
                    continue
                if not data:
                    raise Unreachable("the IRC server closed the connection")
                asked = False
                *lines, unfinished = (unfinished + data).split(b"\n")
                if len(unfinished) > _LONGEST_LINE:
                    raise Unreachable("the server sent a line that is no IRC")
                await self._process([message for line in lines if (message := parse_line(line))])
        except PlatformError as error:
            self._fail(error)
        except OSError as error:
            self._fail(Unreachable(f"the connection broke: {error}"))

    def _end_reading(self, reading: asyncio.Future[None]) -> None:
        """Give up a connection that sent lines which we can't process."""
        if not reading.cancelled() and (error := reading.exception()):
            log.error("irc: a line can't be processed", exc_info=error)
            self._fail(Unreachable(f"the server sent something that is no IRC: {error!r}"))

    def _keep_alive(self) -> None:
        """Ask for a sign of life, and for a nick and channels that we have lost."""
        self._write("PING :alive")
        if self._registered.done() and fold(self.nick) != fold(self._settings.nick):
            self._write(f"NICK {self._settings.nick}")
        if self.receives_channels:
            for channel in self._settings.channels:
                if fold(channel) not in self.joined:
                    self._write(f"JOIN {channel} {self._settings.keys.get(channel, '')}".rstrip())

    async def _process(self, messages: Sequence[IrcMessage]) -> None:
        """Store what people wrote, then handle everything else."""
        now = datetime.now(UTC)
        received = [line for one in messages if (line := read_privmsg(one, self._capabilities, now))]
        ours = [line for line in received if self.receives_channels or fold(line.target) == fold(self.nick)]
        if ours:
            await self._receive(ours)
        for message in messages:
            self._handle(message)

    def _handle(self, message: IrcMessage) -> None:
        match message.command:
            case "PING":
                self._write(f"PONG :{message.text}")
            case "PONG":
                if self._fence and message.text == self._fence[0] and not self._fence[1].done():
                    self._fence[1].set_result(None)
            case "ERROR":
                self._fail(self._read_error(message))
            case "JOIN" | "PART" | "KICK" | "NICK":
                self._follow(message)
            case "005":
                self.network = read_network(message) or self.network
            case _ if not self._registered.done():
                self._register(message)
            case command if command.isdigit() and self._fence:
                self._answers.append(message)

    def _read_error(self, message: IrcMessage) -> PlatformError:
        return Unreachable(f"the IRC server closed the connection: {message.text}")

    def _follow(self, message: IrcMessage) -> None:
        """Follow our own nick and channels."""
        who = message.params[1] if message.command == "KICK" and len(message.params) > 1 else message.nick
        if fold(who) != fold(self.nick) or not message.params:
            return
        if message.command == "NICK":
            self.nick = message.params[0]
        elif message.command == "JOIN":
            self.joined.add(fold(message.params[0]))
        else:
            log.warning("irc: we are out of %s: %s", message.params[0], message.text)
            self.joined.discard(fold(message.params[0]))

    def _register(self, message: IrcMessage) -> None:
        """Handle a line before the welcome is over."""
        command = message.command
        if command == "CAP":
            self._negotiate(message)
        elif command == "AUTHENTICATE":
            for line in sasl_lines(self._settings.mechanism, self._settings.account, self._settings.password):
                self._write(line)
        elif command == "903":
            self._write("CAP END")
        elif command in _SASL_FAILED:
            self._fail(BadCredentials("the IRC server doesn't accept account and password, or the certificate"))
        elif command in _REFUSED_LOGIN:
            self._fail(BadCredentials(f"{_REFUSED_LOGIN[command]}: {message.text}"))
        elif command in _NICK_TAKEN:
            self._try_other_nick()
        elif command == "001" and message.params:
            self.nick = message.params[0]
        elif command in ("376", "422"):  # the end of the welcome
            self._end_registration()

    def _negotiate(self, message: IrcMessage) -> None:
        """Request the capabilities that we use; with an account, a server without SASL is refused."""
        match message.params[1:2]:
            case ["LS"]:
                self._offered |= {one.partition("=")[0] for one in message.text.split()}
                if message.params[2] == "*":  # more lines follow
                    return
                requested = self._offered & _WANTED - (set() if self._settings.mechanism else {"sasl"})
                if self._settings.mechanism and "sasl" not in requested:
                    self._fail(BadCredentials("the IRC server offers no SASL, so it can't check the account"))
                else:
                    self._write(f"CAP REQ :{' '.join(sorted(requested))}" if requested else "CAP END")
            case ["ACK"]:
                self._capabilities |= set(message.text.split())
                login = "sasl" in self._capabilities
                self._write(f"AUTHENTICATE {self._settings.mechanism}" if login else "CAP END")
            case ["NAK"]:
                self._write("CAP END")

    def _end_registration(self) -> None:
        if self._settings.mechanism and "sasl" not in self._capabilities:
            self._fail(BadCredentials("the IRC server let us in without a login, so it isn't trusted with the account"))
        else:
            self._registered.set_result(None)

    def _try_other_nick(self) -> None:
        self._nick_attempts += 1
        if self._nick_attempts > _MOST_NICKS:
            self._fail(Unreachable(f"the nick {self._settings.nick} and similar ones are taken"))
            return
        self.nick = other_nick(self._settings.nick, self._nick_attempts)
        self._write(f"NICK {self.nick}")

    def _raise_refusal(self, answers: Sequence[IrcMessage], target: str) -> None:
        for answer in answers:
            about = {fold(param) for param in answer.params[1:]}
            if answer.command in _REFUSED_SEND and (fold(target) in about or answer.command in ("411", "412")):
                raise Rejected(f"the IRC server refused a message to {target}: {answer.text}")
