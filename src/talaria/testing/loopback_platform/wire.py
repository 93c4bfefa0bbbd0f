"""Wire types of the loopback network: one JSON object per line."""

from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Button, Content, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image

LONGEST_LINE = 64 * 1024 * 1024
Operation = Literal["login", "receive", "receiving", "post", "edit", "typing", "react", "fetch", "thread"]
FaultKind = Literal[
    "refuse", "slow_down", "unreachable", "bad_credentials", "hang", "disconnect", "lose_answer", "delay"
]  # fmt: skip


class Fault(Struct, frozen=True, omit_defaults=True):
    """A fault for the next operations, in one chat or in all.

    ``lose_answer`` carries out the operation and disconnects before answering; ``delay`` carries it out after
    ``seconds``, which is also the wait of ``slow_down``. ``times`` is how often, 0 for always. A fault of ``receiving``
    silences an open connection permanently.
    """

    operation: Operation
    trouble: FaultKind
    times: int = 1
    chat_id: str = ""
    seconds: float = 1.0


class Sent(Struct, frozen=True):
    """A file on its way."""

    name: str
    media_type: str
    data: bytes


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operation on the network; a ``repeat`` is a post whose key had been posted before."""

    number: int
    kind: Literal["post", "repeat", "edit", "typing", "reaction", "thread"]
    at: float
    address: Address
    message_id: str = ""
    text: str = ""
    key: str = ""
    reply_to: str = ""
    buttons: tuple[Button, ...] = ()
    files: tuple[str, ...] = ()


class Login(Struct, frozen=True, tag="login", tag_field="do"):
    """The first line of an account's connection."""

    token: str


class Receive(Struct, frozen=True, tag="receive", tag_field="do"):
    """From now on this connection gets `Arrived` and sends `Confirm`, nothing else."""


class Confirm(Struct, frozen=True, tag="confirm", tag_field="do"):
    """Confirmation that the update with this id was stored."""

    external_id: str


class Post(Struct, frozen=True, tag="post", tag_field="do", kw_only=True):
    """A message for a chat."""

    address: Address
    key: str
    text: str = ""
    reply_to: str = ""
    buttons: tuple[Button, ...] = ()
    files: tuple[Sent, ...] = ()


class Edit(Struct, frozen=True, tag="edit", tag_field="do", kw_only=True):
    """Another text for a message that was posted."""

    address: Address
    message_id: str
    text: str
    buttons: tuple[Button, ...] = ()


class ShowTyping(Struct, frozen=True, tag="typing", tag_field="do"):
    """An answer is being written."""

    address: Address


class React(Struct, frozen=True, tag="react", tag_field="do"):
    """A mark on a message, in place of the one before; empty takes it away."""

    address: Address
    message_id: str
    emoji: str


class Fetch(Struct, frozen=True, tag="fetch", tag_field="do"):
    """Download an attachment."""

    reference: str


class MakeThread(Struct, frozen=True, tag="thread", tag_field="do"):
    """Create a thread in a chat."""

    chat_id: str
    name: str


class Say(Struct, frozen=True, tag="say", tag_field="do", kw_only=True, omit_defaults=True):
    """Control: a person writes or presses a button; with a used ``external_id`` it is delivered again.

    ``at`` is the network's time of it, by default now.
    """

    address: Address
    sender: Sender
    text: str = ""
    external_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    data: tuple[bytes, ...] = ()
    message_id: str = ""
    reply_to: str = ""
    addressed: bool = True
    button: str = ""
    reaction: str = ""
    edited: bool = False
    formerly: str = ""
    deliveries: int = 1
    at: datetime | None = None


class SetFaults(Struct, frozen=True, tag="upset", tag_field="do"):
    """Control: replace the faults; each answer takes ``delay`` seconds."""

    faults: tuple[Fault, ...] = ()
    delay: float = 0.0


class Drop(Struct, frozen=True, tag="drop", tag_field="do"):
    """Control: disconnect all other clients."""


class ReadRecords(Struct, frozen=True, tag="look", tag_field="do"):
    """Control: return operations from this number on; waits at most so many seconds for one."""

    since: int = 0
    patience: float = 0.0


AccountRequest = Receive | Post | Edit | ShowTyping | React | Fetch | MakeThread
Request = Login | Confirm | AccountRequest | Say | SetFaults | Drop | ReadRecords


class Done(Struct, frozen=True, tag="done", tag_field="is", omit_defaults=True):
    """The operation succeeded; ``id`` is that of the message, the thread or the update."""

    id: str = ""
    data: bytes = b""
    records: tuple[Record, ...] = ()


class Failed(Struct, frozen=True, tag="failed", tag_field="is"):
    """The operation failed."""

    trouble: FaultKind
    text: str
    seconds: float = 0.0


class Arrived(Struct, frozen=True, tag="arrived", tag_field="is"):
    """An update."""

    incoming: Incoming


class Beat(Struct, frozen=True, tag="beat", tag_field="is"):
    """A heartbeat: the connection is alive."""


Answer = Done | Failed | Arrived | Beat
_encode = msgspec.json.Encoder().encode
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def line(content: Request | Answer) -> bytes:
    """Return something as a line."""
    return _encode(content) + b"\n"


def decode_request(read: bytes) -> Request:
    """Return what a client asks for, or raise `msgspec.DecodeError`."""
    return _requests.decode(read)


def decode_answer(read: bytes) -> Answer:
    """Return what the network says, or raise `msgspec.DecodeError`."""
    return _answers.decode(read)


def to_post(to: Address, content: Content, key: str, files: tuple[Sent, ...]) -> Post:
    """Return a message for the network; its files were read before."""
    text = replace_surrogates(content.text)
    return Post(address=to, key=key, text=text, reply_to=content.reply_to, buttons=content.buttons, files=files)


def replace_surrogates(text: str) -> str:
    """Return a text without halves of characters, which cannot travel."""
    return text.encode(errors="replace").decode()


def read_sent_file(file: File | Image) -> Sent:
    """Read a file from the disk, or raise `Rejected`."""
    path = Path(file.source)
    try:
        return Sent(file.name if isinstance(file, File) else path.name, file.media_type, path.read_bytes())
    except OSError as error:
        raise Rejected(f"{path.name} cannot be read: {error.strerror}") from error
