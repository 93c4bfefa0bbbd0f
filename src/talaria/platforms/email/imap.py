"""A small IMAP client on asyncio: log in, read mail by UID, wait with IDLE, search and append."""

import asyncio
import base64
import binascii
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from talaria.core.errors import BadCredentials, Rejected, Unreachable
from talaria.core.formatting import describe_os_error
from talaria.platforms.email.settings import Security

_LINE_LIMIT = 1024 * 1024
_LITERAL = re.compile(rb"\{(\d+)\}\r\n\Z")
_TOKEN = re.compile(rb'\s*(?:"((?:[^"\\]|\\.)*)"|(\()|(\))|\{(\d+)\}|([^\s()"]+))')
_ESCAPED = re.compile(rb"\\(.)")
_DATE = "%d-%b-%Y %H:%M:%S %z"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ERROR_TEXT = 200
_CLOSE_SECONDS = 1.0
_CREDENTIAL_CODES = (b"[AUTHENTICATIONFAILED]", b"[AUTHORIZATIONFAILED]", b"[EXPIRED]")

Token = bytes | list["Token"]


class Folder(Struct, frozen=True):
    """A selected folder: the validity of its UIDs, and the UID of the next mail."""

    validity: int
    next_uid: int


class MailEntry(Struct, frozen=True):
    """A mail of the selected folder: its UID, size in bytes and time of arrival."""

    uid: int
    size: int
    at: datetime


class _Response(Struct, frozen=True):
    """A line of the server with its literals, which are marked in ``text`` by their length in braces."""

    text: bytes
    literals: tuple[bytes, ...] = ()


class ImapRefused(Exception):
    """The server answered ``NO`` or ``BAD``."""


class ImapConnection:
    """An open connection. Raises `Unreachable` if the server fails or is silent for longer than ``patience``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: timedelta) -> None:
        self._reader = reader
        self._writer = writer
        self._patience = patience.total_seconds()
        self._count = 0
        self._has_new = False
        self.capabilities: frozenset[str] = frozenset()

    async def log_in(self, user: str, *, password: str = "", token: str = "") -> None:
        """Authenticate with a password or an OAuth token; raises `BadCredentials`."""
        try:
            if token:
                await self._authenticate("XOAUTH2", f"user={user}\x01auth=Bearer {token}\x01\x01".encode())
            elif "AUTH=PLAIN" in self.capabilities:
                await self._authenticate("PLAIN", b"\0".join((b"", user.encode(), password.encode())))
            else:
                await self._run(f"LOGIN {_quote(user)} {_quote(password)}")
        except ImapRefused as error:
            answer = error.args[1]
            if b"[" in answer and not answer.startswith(_CREDENTIAL_CODES):  # for example [UNAVAILABLE] or [LIMIT]
                raise Unreachable(f"the IMAP server refuses the login for now: {_shorten(answer)}") from error
            raise BadCredentials("the IMAP server doesn't accept the user name or password") from error
        await self.read_capabilities()

    async def select(self, folder: str, *, read_only: bool = False) -> Folder:
        """Open a folder; raises `Rejected` if there is none with this name."""
        try:
            lines = await self._run(f"{'EXAMINE' if read_only else 'SELECT'} {_quote_folder(folder)}")
        except ImapRefused as error:
            raise Rejected(f"the IMAP server can't open the folder {folder}: {error}") from error
        numbers = dict(re.findall(rb"\[(UIDVALIDITY|UIDNEXT) (\d+)\]", b"\n".join(line.text for line in lines)))
        if b"UIDNEXT" not in numbers:  # optional in the protocol
            numbers[b"UIDNEXT"] = str(max(await self.search("ALL"), default=0) + 1).encode()
        return Folder(int(numbers.get(b"UIDVALIDITY", 0)), int(numbers[b"UIDNEXT"]))

    async def list_after(self, uid: int) -> list[MailEntry]:
        """Return the mails after a UID, in the order of arrival."""
        self._has_new = False
        lines = await self._run_command(f"UID FETCH {uid + 1}:* (UID RFC822.SIZE INTERNALDATE)")
        found = [_read_entry(fields) for fields in map(_read_fetch, lines) if b"RFC822.SIZE" in fields]
        # A range up to `*` contains the last mail even if its UID is smaller.
        return sorted((entry for entry in found if entry.uid > uid), key=lambda entry: entry.uid)

    async def fetch(self, uid: int, part: str, patience: timedelta) -> bytes | None:
        """Return a part of a mail, for example ``BODY[]``, without marking it as read; ``None`` if it is gone."""
        lines = await self._run_command(f"UID FETCH {uid} (UID {part.replace('BODY[', 'BODY.PEEK[', 1)})", patience)
        for fields in map(_read_fetch, lines):
            if fields.get(b"UID") == str(uid).encode() and isinstance(body := fields.get(part.encode()), bytes):
                return body
        return None

    async def mark_seen(self, uid: int) -> None:
        """Mark a mail as read."""
        await self._run_command(f"UID STORE {uid} +FLAGS.SILENT (\\Seen)")

    async def search(self, criteria: str) -> list[int]:
        """Return the UIDs of the mails that meet the criteria."""
        lines = await self._run_command(f"UID SEARCH {criteria}")
        return sorted(
            int(number)
            for line in lines
            if line.text.upper().startswith(b"* SEARCH")
            for number in line.text.split()[2:]
            if number.isdigit()
        )

    async def search_message(self, message_id: str) -> list[int]:
        """Return the UIDs of the mails with a ``Message-ID``."""
        return await self.search(f"HEADER Message-ID {_quote(message_id)}")

    async def search_since(self, at: datetime) -> list[int]:
        """Return the UIDs of the mails that arrived on this day or the one before, or later."""
        day = at.astimezone(UTC) - timedelta(days=1)
        return await self.search(f"SINCE {day.day}-{_MONTHS[day.month - 1]}-{day.year}")

    async def find_sent_folder(self) -> str | None:
        """Return the folder for sent mail, if the server marks one or has one with the usual name."""
        names = []
        for line in await self._run_command('LIST "" "*"'):
            tokens = _parse(line)
            if tokens[1:2] != [b"LIST"] or not isinstance(tokens[-1], bytes):
                continue
            if isinstance(tokens[2], list) and b"\\sent" in [
                one.lower() for one in tokens[2] if isinstance(one, bytes)
            ]:
                return tokens[-1].decode("ascii", "replace")
            names.append(tokens[-1].decode("ascii", "replace"))
        return next((name for name in names if re.split(r"[./]", name)[-1] in ("Sent", "Sent Items")), None)

    async def append(self, folder: str, mail: bytes, patience: timedelta, *, is_new: bool = False) -> None:
        """Add a mail to a folder, marked as read; a new folder is created first."""
        if is_new:
            await self._run_command(f"CREATE {_quote_folder(folder)}")
        await self._run_command(f"APPEND {_quote_folder(folder)} (\\Seen)", patience, literal=mail)

    async def wait_for_change(self, limit: timedelta) -> None:
        """Return when the server reports a change in the folder, after ``limit`` at the latest."""
        if self._has_new:  # reported since the last list
            return
        if "IDLE" not in self.capabilities:
            await asyncio.sleep(limit.total_seconds())
            await self._run_command("NOOP")
            return
        tag = await self._send("IDLE")
        while not (response := await self._read()).text.startswith(b"+"):
            if response.text.startswith(tag):
                raise Unreachable(f"the IMAP server refuses IDLE: {_shorten(response.text)}")
        with suppress(TimeoutError):
            async with asyncio.timeout(limit.total_seconds()):  # what is not a whole line yet stays in the buffer
                while not self._has_new:
                    self._note_response(await self._read_line())
        await self._write(b"DONE\r\n")
        await self._complete(tag, self._patience)

    async def log_out(self) -> None:
        """Say goodbye without waiting for the answer."""
        with suppress(Unreachable):
            await self._send("LOGOUT")

    async def start_tls(self, host: str, context: ssl.SSLContext) -> None:
        """Encrypt the connection; raises `Unreachable` if the server can't."""
        await self.read_capabilities()
        await self._run_command("STARTTLS")
        try:
            async with asyncio.timeout(self._patience):
                await self._writer.start_tls(context, server_hostname=host)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{host} can't be reached over TLS: {error}") from error

    async def greet(self) -> None:
        """Read the greeting."""
        greeting = await self._read()
        if not greeting.text.upper().startswith((b"* OK", b"* PREAUTH")):
            raise Unreachable(f"the IMAP server refuses the connection: {_shorten(greeting.text)}")

    async def read_capabilities(self) -> None:
        """Ask the server what it can do."""
        lines = await self._run_command("CAPABILITY")
        names = [line.text.upper().split()[2:] for line in lines if line.text.upper().startswith(b"* CAPABILITY")]
        self.capabilities = frozenset(name.decode("ascii", "replace") for line in names for name in line)

    async def _authenticate(self, mechanism: str, initial: bytes) -> None:
        encoded = base64.b64encode(initial)
        if "SASL-IR" in self.capabilities:
            tag = await self._send(f"AUTHENTICATE {mechanism} {encoded.decode()}")
        else:
            tag = await self._send(f"AUTHENTICATE {mechanism}")
            await self._wait_for_continuation(tag)
            await self._write(encoded + b"\r\n")
        while True:
            response = await self._read()
            if response.text.startswith(b"+"):  # XOAUTH2 explains a refusal; an empty line ends the exchange
                await self._write(b"\r\n")
            elif response.text.startswith(tag):
                _check_status(response.text[len(tag) :])
                return

    async def _run_command(
        self, command: str, patience: timedelta | None = None, *, literal: bytes | None = None
    ) -> list[_Response]:
        """Run a command and return the untagged answers; a refusal means that the server is not usable now."""
        try:
            return await self._run(command, patience, literal=literal)
        except ImapRefused as error:
            raise Unreachable(f"the IMAP server refuses {command.split(' ', maxsplit=1)[0]}: {error}") from error

    async def _run(
        self, command: str, patience: timedelta | None = None, *, literal: bytes | None = None
    ) -> list[_Response]:
        seconds = patience.total_seconds() if patience else self._patience
        if literal is None:
            tag = await self._send(command)
        else:
            tag = await self._send(f"{command} {{{len(literal)}}}")
            await self._wait_for_continuation(tag)
            await self._write(literal + b"\r\n", seconds)
        return await self._complete(tag, seconds)

    async def _wait_for_continuation(self, tag: bytes) -> None:
        while not (response := await self._read()).text.startswith(b"+"):
            if response.text.startswith(tag):
                _check_status(response.text[len(tag) :])

    async def _complete(self, tag: bytes, seconds: float) -> list[_Response]:
        lines: list[_Response] = []
        while True:
            response = await self._read(seconds)
            if response.text.startswith(tag):
                _check_status(response.text[len(tag) :])
                return lines
            lines.append(response)

    async def _send(self, command: str) -> bytes:
        self._count += 1
        tag = f"T{self._count} "
        await self._write(f"{tag}{command}\r\n".encode())
        return tag.encode()

    async def _write(self, data: bytes, seconds: float | None = None) -> None:
        try:
            async with asyncio.timeout(seconds or self._patience):
                self._writer.write(data)
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"the IMAP server can't be reached: {error}") from error

    async def _read(self, seconds: float | None = None) -> _Response:
        """Return the next response with its literals."""
        try:
            async with asyncio.timeout(seconds or self._patience):
                text, literals = await self._read_line(), []
                while found := _LITERAL.search(text):
                    literals.append(await self._reader.readexactly(int(found[1])))
                    text = text[:-2] + await self._read_line()
        except TimeoutError as error:
            raise Unreachable("the IMAP server doesn't answer") from error
        except (OSError, EOFError) as error:
            raise Unreachable(f"the connection to the IMAP server broke: {error}") from error
        self._note_response(text)
        return _Response(text.removesuffix(b"\r\n"), tuple(literals))

    def _note_response(self, line: bytes) -> None:
        """Note what the server reports on its own; raises `Unreachable` if it hangs up."""
        if re.match(rb"\* \d+ EXISTS", line, re.IGNORECASE):
            self._has_new = True
        if line.upper().startswith(b"* BYE"):
            raise Unreachable(f"the IMAP server ended the connection: {_shorten(line)}")

    async def _read_line(self) -> bytes:
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:
            raise Unreachable(f"the connection to the IMAP server broke: {error}") from error
        if not line.endswith(b"\n"):
            raise Unreachable("the IMAP server ended the connection")
        return line


@asynccontextmanager
async def open_imap(
    host: str, port: int, security: Security, context: ssl.SSLContext | None, patience: timedelta
) -> AsyncIterator[ImapConnection]:
    """Connect to a server, encrypted unless ``security`` is ``none``; the connection is closed with the block."""
    try:
        async with asyncio.timeout(patience.total_seconds()):
            reader, writer = await asyncio.open_connection(
                host, port, limit=_LINE_LIMIT, ssl=context if security == "tls" else None
            )
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"the IMAP server {host}:{port} can't be reached: {describe_os_error(error)}") from error
    try:
        connection = ImapConnection(reader, writer, patience)
        await connection.greet()
        if security == "starttls":
            assert context is not None
            await connection.start_tls(host, context)
        await connection.read_capabilities()
        yield connection
        await connection.log_out()
    finally:
        writer.transport.abort()  # a farewell over TLS would wait for that of the server
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await writer.wait_closed()


def _check_status(answer: bytes) -> None:
    """Raise `ImapRefused` unless the answer after the tag is ``OK``."""
    status, _, text = answer.partition(b" ")
    if status.upper() != b"OK":
        raise ImapRefused(_shorten(answer), text)


def _shorten(text: bytes) -> str:
    return text[:_ERROR_TEXT].decode(errors="replace").strip()


def _quote(text: str) -> str:
    if not text.isprintable() or not text.isascii():
        raise Rejected("the IMAP server takes only ASCII text here")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quote_folder(name: str) -> str:
    """Return the name of a folder in the modified UTF-7 of IMAP; names from the server are encoded already."""
    if name.isascii():
        return _quote(name)
    encoded = re.sub(r"[^\x20-\x7e]+", lambda found: _encode_utf7(found[0]), name.replace("&", "&-"))
    return _quote(encoded)


def _encode_utf7(text: str) -> str:
    encoded = binascii.b2a_base64(text.encode("utf-16-be"), newline=False).rstrip(b"=").replace(b"/", b",")
    return f"&{encoded.decode()}-"


def _parse(response: _Response) -> list[Token]:
    """Return the words, strings and lists of a response."""
    top: list[Token] = []
    stack, literals = [top], list(response.literals)
    for quoted, opening, closing, literal, atom in _TOKEN.findall(response.text):
        if opening:
            inner: list[Token] = []
            stack[-1].append(inner)
            stack.append(inner)
        elif closing:
            if len(stack) > 1:
                stack.pop()
        elif literal and literals:
            stack[-1].append(literals.pop(0))
        else:
            stack[-1].append(atom or _ESCAPED.sub(rb"\1", quoted))
    return top


def _read_fetch(response: _Response) -> dict[bytes, Token]:
    """Return the items of a ``FETCH`` response; none for other responses."""
    tokens = _parse(response)
    if len(tokens) < 4 or tokens[2] != b"FETCH" or not isinstance(tokens[3], list):
        return {}
    return {key.upper(): value for key, value in _split_pairs(tokens[3]) if isinstance(key, bytes)}


def _split_pairs(items: Sequence[Token]) -> list[tuple[Token, Token]]:
    return list(zip(items[::2], items[1::2], strict=False))


def _read_entry(fields: dict[bytes, Token]) -> MailEntry:
    try:
        uid, size, at = (bytes(fields[key]) for key in (b"UID", b"RFC822.SIZE", b"INTERNALDATE"))  # type: ignore[arg-type]
        return MailEntry(int(uid), int(size), datetime.strptime(at.decode().strip(), _DATE).astimezone(UTC))
    except (KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"the IMAP server's list of mails can't be read: {error}") from error
