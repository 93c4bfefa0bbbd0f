"""A session as a file: Markdown to read, JSON and JSON lines that hold everything."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import assert_never

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import NotFound
from talaria.core.harmless import harmless_json
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from talaria.core.wording import clock_time

PROGRAM = "Talaria, not a person"  # the author of what the program itself tells the agent

_LONGEST_LINE = 500
_LONGEST_NAME = 60
_BACKTICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))")


class Transcript(Struct, frozen=True):
    """The content of a JSON file, and what the other forms are made from."""

    session: Session
    messages: tuple[StoredMessage, ...]


def load_transcript(tx: Transaction, session_id: SessionId) -> Transcript:
    """Return all of a session, or raise `NotFound`."""
    session = tx.sessions.get(session_id)
    if session is None:
        raise NotFound(f"There is no session {session_id}.")
    return Transcript(session, tuple(tx.messages.load(session_id)))


class SessionLine(Struct, frozen=True, tag="session"):
    """The first line of a file of JSON lines."""

    session: Session


class MessageLine(Struct, frozen=True, tag="message"):
    """Every other line of such a file."""

    seq: int
    message: Message


def said_by_people(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return a conversation without what the program itself said to the agent, and what came of that."""
    kept, by_program = [], False
    for stored in messages:
        if stored.message.role == "user":
            by_program = stored.message.author == PROGRAM
        if not by_program:
            kept.append(stored)
    return kept


def is_mirrored(message: Message) -> bool:
    """Tell whether this was sent into its conversation from elsewhere; the agent's other words name no author."""
    return message.role == "assistant" and bool(message.author)


def to_json(transcript: Transcript, _zone: tzinfo | None = None) -> str:
    """Return one JSON object; decoded as a `Transcript` it is equal to what it was made from."""
    return harmless_json(msgspec.json.format(msgspec.json.encode(transcript), indent=2).decode()) + "\n"


def to_json_lines(transcript: Transcript, _zone: tzinfo | None = None) -> str:
    """Return a `SessionLine` and behind it a `MessageLine` for each message."""
    lines = [SessionLine(transcript.session), *(MessageLine(one.seq, one.message) for one in transcript.messages)]
    return harmless_json(b"".join(msgspec.json.encode(line) + b"\n" for line in lines).decode())


def to_markdown(transcript: Transcript, zone: tzinfo | None = None) -> str:
    """Return a document with a heading for each message; whatever a message holds, the next one is outside of it."""
    session = transcript.session
    blocks = [f"# {' '.join(session.title.split()) or 'Session ' + session.id}", _facts(session, zone)]
    for stored in transcript.messages:
        blocks.append(_heading(stored.message, zone))
        blocks += [block for part in stored.message.parts if (block := _block(part))]
    return "\n\n".join(blocks) + "\n"


def file_name(session: Session, suffix: str) -> str:
    """Return a name that begins with the id and goes on with what of the title may stand in one."""
    words = "".join(character if character.isalnum() else " " for character in session.title.lower())
    name = "-".join([session.id.replace("/", "_"), *words[:_LONGEST_NAME].split()])
    return f"{name}.{suffix}"


def in_a_line(part: Part) -> str:
    """Return what a part is about, for a reader who passes over it."""
    match part:
        case ToolCall():
            return f"→ {part.name} {part.arguments[:_LONGEST_LINE]}"
        case ToolResult():
            return f"← {'failed: ' if part.failed else ''}{part.text[:_LONGEST_LINE]}"
        case Reasoning():
            return f"(thought) {part.text[:_LONGEST_LINE]}"
        case Image():
            return f"[image] {part.source}"
        case File():
            return f"[file] {part.name}"
        case Text():
            return part.text
        case _:
            assert_never(part)


FORMATS: Mapping[str, tuple[str, Callable[[Transcript, tzinfo | None], str]]] = {
    "markdown": ("md", to_markdown),
    "json": ("json", to_json),
    "jsonl": ("jsonl", to_json_lines),
}


def _facts(session: Session, zone: tzinfo | None) -> str:
    facts = {
        "Session": f"`{session.id}`",
        "Source": session.source,
        "Model": session.model,
        "Begun": clock_time(session.created_at, zone),
        "Last used": clock_time(session.updated_at, zone),
        "Messages": str(session.message_count),
    }
    return "\n".join(f"- {name}: {' '.join(value.split())}" for name, value in facts.items() if value)


def _heading(message: Message, zone: tzinfo | None) -> str:
    words = [message.role.capitalize(), " ".join(message.author.split()), clock_time(message.at, zone)]
    return f"## {' · '.join(filter(None, words))}"


def _block(part: Part) -> str:
    match part:
        case Text():
            return closed(part.text.strip("\n"))
        case Reasoning():
            return f"Thought:\n\n{fenced(part.text)}"
        case ToolCall():
            return f"Tool call {code(part.name)}:\n\n{fenced(part.arguments, 'json')}"
        case ToolResult():
            return f"{'Tool failure' if part.failed else 'Tool result'}:\n\n{fenced(part.text)}"
        case Image():
            return f"Image: {code(part.source)}"
        case File():
            return f"File {code(part.name)}: {code(part.source)}"
        case _:
            assert_never(part)


def fenced(text: str, language: str = "") -> str:
    """Return text between fences that are longer than any in it."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return "\n".join([fence + language, *([text.rstrip("\n")] if text else []), fence])


def code(text: str) -> str:
    """Return text as a piece of code on one line, whatever backticks are in it."""
    ticks = "`" * (_longest_run(text) + 1)
    inner = " ".join(text.split())
    return f"{ticks} {inner} {ticks}" if "`" in inner else f"{ticks}{inner}{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


def closed(text: str) -> str:
    """Return Markdown with its last fence closed, so that what follows it is not taken for code."""
    fence = ""
    for marks, rest in _fences(text):
        if not fence:
            fence = marks
        elif marks[0] == fence[0] and len(marks) >= len(fence) and not rest:
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _fences(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        if found := _FENCE.fullmatch(line):
            yield found[1] or found[3], (found[2] or found[4] or "").strip()
