"""IRC lines: parsing, formatting, splitting by bytes, and translation to the vocabulary, without I/O."""

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from talaria.contracts.platform import Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.content import PLAIN, convert_markdown, read_command, sanitize_text

TEXT_LIMIT = 400  # bytes of a message, which is one line unless nick and channel are very long
MOST_LINES = 15  # of a message: at one line per second they are sent before a call times out
_LINE_BYTES = 510  # without its end
_PREFIX_BYTES = len(":!@ ") + 11 + 63  # what a server puts before our line, without the nick: the longest user and host
_SASL_CHUNK = 400
_FOLDED = str.maketrans("[]\\~", "{}|^")
_TAG_ESCAPES = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
_CTCP = "\x01"
_FORMATTING = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9a-fA-F]{6})?|[\x02\x0f\x11\x16\x1d\x1e\x1f]")
_FENCE = re.compile(r"\s*```[\w+-]*\s*")  # around code: a line of its own that says nothing


class IrcMessage(Struct, frozen=True):
    """A line from the server; ``source`` is a server or ``nick!user@host``."""

    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = {}

    @property
    def nick(self) -> str:
        """Return the nick of the source."""
        return self.source.partition("!")[0]

    @property
    def text(self) -> str:
        """Return the last parameter."""
        return self.params[-1] if self.params else ""


class ReceivedLine(Struct, frozen=True, omit_defaults=True):
    """A line of a person. ``account`` is empty without login, ``None`` if the server doesn't send it."""

    source: str
    target: str
    text: str
    at: datetime
    message_id: str = ""
    account: str | None = None

    @property
    def nick(self) -> str:
        """Return the nick of the sender."""
        return self.source.partition("!")[0]


def parse_line(data: bytes) -> IrcMessage | None:
    """Return a line from the server; ``None`` if it is empty. Text that is not UTF-8 is read as Latin-1."""
    try:
        line = data.decode().strip("\r\n")
    except UnicodeDecodeError:
        line = data.decode("latin-1").strip("\r\n")
    tags: dict[str, str] = {}
    if line.startswith("@"):
        tag_text, _, line = line[1:].partition(" ")
        tags = {key: _unescape(value) for key, _, value in (tag.partition("=") for tag in tag_text.split(";"))}
    source = ""
    if (line := line.lstrip(" ")).startswith(":"):
        source, _, line = line[1:].partition(" ")
    head, has_text, text = line.partition(" :")
    params = [*head.split(), *([text] if has_text else [])]
    return IrcMessage(params[0].upper(), tuple(params[1:]), source, tags) if params else None


def read_privmsg(message: IrcMessage, capabilities: Collection[str], now: datetime) -> ReceivedLine | None:
    """Return what a person wrote; ``None`` for anything else, for example an answer that a program asked for."""
    if message.command != "PRIVMSG" or len(message.params) < 2 or "!" not in message.source:
        return None
    text = message.text
    if text.startswith(_CTCP):
        kind, _, action = text.strip(_CTCP).partition(" ")
        if kind != "ACTION":
            return None
        text = f"*{action}*"
    account = message.tags.get("account", "") if "account-tag" in capabilities else None
    at = _read_time(message.tags.get("time", "")) or now
    text = sanitize_text(_FORMATTING.sub("", text))
    return ReceivedLine(message.source, message.params[0], text, at, message.tags.get("msgid", ""), account)


def read_network(message: IrcMessage) -> str:
    """Return the name of the network in what a server says about itself; empty if it isn't there."""
    return next((one.partition("=")[2] for one in message.params if one.startswith("NETWORK=")), "")


def to_incoming(
    line: ReceivedLine,
    key: str,
    address: Address,
    sender: Sender,
    nicks: Collection[str],
    commands: Collection[str],
    *,
    network: str,
) -> Incoming:
    """Return the update for a line.

    In a channel it is addressed to us if it names one of our ``nicks``. ``!name`` becomes the command ``/name``,
    because clients of IRC take a slash for themselves.
    """
    text, addressed = line.text, True
    if address.chat_type != "private":
        names = "|".join(re.escape(nick) for nick in nicks)
        addressed = bool(re.search(rf"(?<!\w)(?:{names})(?!\w)", text, re.IGNORECASE))
        text = re.sub(rf"\A@?(?:{names})(?:[:,]\s*|\s+)", "", text, count=1, flags=re.IGNORECASE) or text
    return Incoming(
        external_id=line.message_id or key,
        address=address,
        sender=sender,
        at=line.at,
        text=read_command(text, commands),
        message_id=line.message_id or key,
        chat_name=line.target if address.chat_type != "private" else line.nick,
        addressed=addressed,
        server=network,
    )


def fold(name: str) -> str:
    """Return a nick, account or channel in lower case, as servers compare them."""
    return name.translate(_FOLDED).lower()


def split_message(text: str, nick: str, target: str) -> list[str]:
    """Return the lines of a text, each short enough to reach everyone whole; raises `Rejected` if it has no text.

    A line is cut at a space or between characters, never inside one. More than `MOST_LINES` lines are joined.
    """
    text = convert_markdown(text, PLAIN).replace("\t", "    ")
    if len(text.encode()) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} bytes, and this one {len(text.encode())}")
    lines = [line for line in text.split("\n") if line.strip() and not _FENCE.fullmatch(line)]
    if not lines:
        raise Rejected("a message without text can't be sent")
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], " / ".join(line.strip() for line in lines[MOST_LINES - 1 :])]
    most = _LINE_BYTES - _PREFIX_BYTES - len(nick) - len(f"PRIVMSG {target} :".encode())
    return [piece for line in lines for piece in cut_line(line, most)]


def cut_line(line: str, most: int) -> Iterator[str]:
    """Yield pieces of at most ``most`` bytes, cut at a space in their second half or else between characters."""
    data = line.encode()
    while len(data) > most:
        end = most
        while data[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        space = data.rfind(b" ", end // 2, end + 1)
        yield data[: space if space > 0 else end].decode()
        data = data[space + 1 if space > 0 else end :]
    if data:
        yield data.decode()


def sasl_lines(mechanism: str, account: str, password: str) -> list[str]:
    """Return the lines that log in after the server has accepted the mechanism."""
    secret = f"\0{account}\0{password}".encode() if mechanism == "PLAIN" else b""
    encoded = base64.b64encode(secret).decode()
    chunks = [encoded[at : at + _SASL_CHUNK] for at in range(0, len(encoded), _SASL_CHUNK)]
    if not chunks or len(chunks[-1]) == _SASL_CHUNK:
        chunks.append("+")
    return [f"AUTHENTICATE {chunk}" for chunk in chunks]


def other_nick(nick: str, attempt: int) -> str:
    """Return a nick to try if ours is taken; short enough for servers that allow nine characters."""
    return f"{nick}_" if attempt == 1 else f"{nick[:7]}{attempt}"


def _unescape(value: str) -> str:
    return re.sub(r"\\(.?)", lambda match: _TAG_ESCAPES.get(match[1], match[1]), value)


def _read_time(stamp: str) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return None
