"""Translation between XMPP stanzas and the vocabulary, without I/O."""

import mimetypes
import re
from collections.abc import Collection
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid5
from xml.etree.ElementTree import Element

from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.content import STARS, convert_markdown, read_command, sanitize_text
from talaria.platforms.xmpp.xml_stream import CLIENT, make

TEXT_LIMIT = 8000  # characters; servers limit stanzas to 64 KB or more
CHAT_STATES = "http://jabber.org/protocol/chatstates"
MUC_USER = "http://jabber.org/protocol/muc#user"
MAM = "urn:xmpp:mam:2"
FORWARD = "urn:xmpp:forward:0"
_CARBONS = "urn:xmpp:carbons:2"
_DELAY = "urn:xmpp:delay"
_STANZA_IDS = "urn:xmpp:sid:0"
_CORRECTION = "urn:xmpp:message-correct:0"
_REACTIONS = "urn:xmpp:reactions:0"
_REPLY = "urn:xmpp:reply:0"
_FALLBACK = "urn:xmpp:fallback:0"
_OOB = "jabber:x:oob"
_HINTS = "urn:xmpp:hints"
_OMEMO = ("{eu.siacs.conversations.axolotl}encrypted", "{urn:xmpp:omemo:2}encrypted")
_MESSAGE_IDS = UUID("5f0c1d54-3a3e-4d0e-9f2c-6d1b5a0d8c11")


class XmppMessage(Struct, frozen=True):
    """A message as it was received.

    ``archive_id`` is its id in the archive of our account or of its room. ``real_jid`` is who is behind an occupant of
    a room, as far as the room says. ``replaces`` is the id of the message that this one corrects.
    """

    sender: str
    kind: str
    at: datetime
    id: str = ""
    origin_id: str = ""
    archive_id: str = ""
    real_jid: str = ""
    body: str = ""
    replaces: str = ""
    reply_to: str = ""
    reply_author: str = ""
    reactions_to: str = ""
    reactions: tuple[str, ...] = ()
    file_url: str = ""
    is_encrypted: bool = False
    is_delayed: bool = False

    @property
    def chat(self) -> str:
        """Return the address without its resource: of the person, or of the room."""
        return bare(self.sender)

    @property
    def nick(self) -> str:
        """Return the nick in a room."""
        return self.sender.partition("/")[2]

    @property
    def message_id(self) -> str:
        """Return the id by which others refer to it."""
        return self.id or self.origin_id or self.archive_id


def bare(jid: str) -> str:
    """Return an address without its resource."""
    return jid.partition("/")[0].lower()


def make_message_id(chat: str, key: str) -> str:
    """Return the id of a message: the same for the same key, so that a repeated one is recognised."""
    return str(uuid5(_MESSAGE_IDS, f"{chat}|{key}"))


def check_text(text: str) -> str:
    """Return a text in the styling that XMPP clients show (XEP-0393); raises `Rejected` if it is empty or too long."""
    text = convert_markdown(text, STARS)
    if len(text) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters, and this one {len(text)}")
    if not text.strip():
        raise Rejected("a message without text can't be sent")
    return text


def text_message(to: str, kind: str, message_id: str, text: str, *extras: Element) -> Element:
    """Return a message with text."""
    return make(
        CLIENT,
        "message",
        {"to": to, "type": kind, "id": message_id},
        make(CLIENT, "body", None, text),
        make(_STANZA_IDS, "origin-id", {"id": message_id}),
        *([make(CHAT_STATES, "active")] if kind == "chat" else []),
        *extras,
    )


def reply_element(message_id: str, author: str) -> Element:
    """Return the mark of an answer to a message (XEP-0461)."""
    return make(_REPLY, "reply", {"id": message_id, "to": author})


def correction_element(message_id: str) -> Element:
    """Return the mark of a correction (XEP-0308)."""
    return make(_CORRECTION, "replace", {"id": message_id})


def file_element(url: str) -> Element:
    """Return the mark of a file at an address (XEP-0066)."""
    return make(_OOB, "x", None, make(_OOB, "url", None, url))


def reactions_message(to: str, kind: str, target: str, emoji: str) -> Element:
    """Return the message that replaces our reactions to another (XEP-0444)."""
    marks = [make(_REACTIONS, "reaction", None, emoji)] if emoji else []
    reactions = make(_REACTIONS, "reactions", {"id": target}, *marks)
    return make(CLIENT, "message", {"to": to, "type": kind}, reactions, make(_HINTS, "store"))


def typing_message(to: str, kind: str) -> Element:
    """Return the message that shows that we are typing (XEP-0085)."""
    state = make(CHAT_STATES, "composing")
    return make(CLIENT, "message", {"to": to, "type": kind}, state, make(_HINTS, "no-store"))


def unwrap_carbon(stanza: Element, own_jid: str) -> tuple[Element, bool] | None:
    """Return the message in a copy that our server made, and whether we sent it; ``None`` for other messages.

    Only our own server makes copies: one from anybody else is a forgery.
    """
    for name in ("received", "sent"):
        copy = stanza.find(f"{{{_CARBONS}}}{name}/{{{FORWARD}}}forwarded/{{{CLIENT}}}message")
        if copy is not None and bare(stanza.get("from", own_jid)) == own_jid:
            return copy, name == "sent"
    return None


def has_carbon(stanza: Element) -> bool:
    """Return whether a message claims to be a copy."""
    return any(stanza.find(f"{{{_CARBONS}}}{name}") is not None for name in ("received", "sent"))


def carbons_request() -> Element:
    """Return the request for copies of what our other connections receive (XEP-0280)."""
    return make(_CARBONS, "enable")


def read_message(stanza: Element, archive: str, now: datetime, *, real_jid: str = "") -> XmppMessage:
    """Return a message that has just arrived; ids and times count only if ``archive`` gave them."""
    ids = stanza.findall(f"{{{_STANZA_IDS}}}stanza-id")
    archive_id = next((one.get("id", "") for one in ids if bare(one.get("by", "")) == archive), "")
    delay = stanza.find(f"{{{_DELAY}}}delay")
    return read_stored(stanza, archive_id, read_time(delay) or now, real_jid=real_jid)


def read_stored(stanza: Element, archive_id: str, at: datetime, *, real_jid: str = "") -> XmppMessage:
    """Return a message with what the archive says about it."""
    reply = stanza.find(f"{{{_REPLY}}}reply")
    reactions = stanza.find(f"{{{_REACTIONS}}}reactions")
    origin = stanza.find(f"{{{_STANZA_IDS}}}origin-id")
    replace = stanza.find(f"{{{_CORRECTION}}}replace")
    return XmppMessage(
        sender=stanza.get("from", ""),
        kind=stanza.get("type", "normal"),
        at=at,
        id=stanza.get("id", ""),
        origin_id=origin.get("id", "") if origin is not None else "",
        archive_id=archive_id,
        real_jid=bare(real_jid),
        body=_read_body(stanza),
        replaces=replace.get("id", "") if replace is not None else "",
        reply_to=reply.get("id", "") if reply is not None else "",
        reply_author=reply.get("to", "") if reply is not None else "",
        reactions_to=reactions.get("id", "") if reactions is not None else "",
        reactions=tuple(one.text for one in reactions if one.text) if reactions is not None else (),
        file_url=(stanza.findtext(f"{{{_OOB}}}x/{{{_OOB}}}url") or "").strip(),
        is_encrypted=any(stanza.find(tag) is not None for tag in _OMEMO),
        is_delayed=stanza.find(f"{{{_DELAY}}}delay") is not None,
    )


def read_time(delay: Element | None) -> datetime | None:
    """Return the time of a delayed message."""
    if delay is None:
        return None
    try:
        return datetime.fromisoformat(delay.get("stamp", "")).astimezone(UTC)
    except ValueError:
        return None


def external_id(message: XmppMessage) -> str:
    """Return the identity of a message: the same if its sender or the archive delivers it again.

    An ``origin-id`` is unique by its definition; the plain id of a message isn't.
    """
    if message.origin_id:
        return f"{message.sender if message.kind == 'groupchat' else message.chat} {message.origin_id}"
    return message.archive_id or f"{message.sender} {message.id} {message.at.timestamp()}"


def to_direct(message: XmppMessage, platform: str, commands: Collection[str]) -> Incoming | None:
    """Return the update for a message of a person; ``None`` if it has no content."""
    address, sender = Address(platform, message.chat), Sender(message.chat, message.chat.partition("@")[0])
    return _to_incoming(message, address, sender, message.body, commands, addressed=True)


def to_group(
    message: XmppMessage, platform: str, nick: str, commands: Collection[str], *, answers_us: bool
) -> Incoming | None:
    """Return the update for a message in a room.

    A nick proves nothing: a sender without a real address is unverified.
    """
    sender = Sender(message.real_jid or f"unverified:{message.sender}", message.nick)
    name = re.escape(nick)
    named = bool(re.search(rf"(?<!\w)@?{name}(?!\w)", message.body, re.IGNORECASE))
    text = re.sub(rf"\A@?{name}(?:[:,]\s*|\s+)", "", message.body, count=1, flags=re.IGNORECASE) or message.body
    address = Address(platform, message.chat, "group")
    return _to_incoming(message, address, sender, text, commands, addressed=named or answers_us)


def _to_incoming(
    message: XmppMessage, address: Address, sender: Sender, text: str, commands: Collection[str], *, addressed: bool
) -> Incoming | None:
    attachments = (_to_attachment(message.file_url),) if message.file_url else ()
    if attachments and text.strip() == message.file_url:
        text = ""
    reaction = message.reactions[-1] if message.reactions else ""
    if not reaction and (message.reactions_to or not (text.strip() or attachments)):
        return None
    return Incoming(
        external_id=external_id(message),
        address=address,
        sender=sender,
        at=message.at,
        text="" if reaction else read_command(sanitize_text(text), commands),
        attachments=() if reaction else attachments,
        message_id=message.reactions_to or message.replaces or message.message_id,
        reply_to=message.reply_to,
        chat_name=address.chat_id.partition("@")[0],
        addressed=addressed,
        reaction=reaction,
        edited=bool(message.replaces),
        server=address.chat_id.partition("@")[2] if address.chat_type == "group" else "",
    )


def _to_attachment(url: str) -> Attachment:
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    media_type = mimetypes.guess_type(name)[0] or ""
    kind = media_type.partition("/")[0]
    if kind == "image":
        return Attachment(url, "picture", name, media_type)
    return Attachment(url, "voice" if kind == "audio" else "document", name, media_type)


def _read_body(stanza: Element) -> str:
    """Return the text without the quote that old clients show in place of a reference."""
    body = stanza.findtext(f"{{{CLIENT}}}body") or ""
    for fallback in stanza.findall(f"{{{_FALLBACK}}}fallback"):
        quote = fallback.find(f"{{{_FALLBACK}}}body")
        if fallback.get("for") == _REPLY and quote is not None:
            start, end = quote.get("start", "0"), quote.get("end", "")
            if start.isdecimal() and end.isdecimal() and int(start) <= int(end):
                return body[: int(start)] + body[int(end) :]
    return body
