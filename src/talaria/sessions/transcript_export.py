"""Session export as Markdown for reading, and as JSON or JSON lines with everything."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import assert_never

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, StoredMessage
from talaria.core.errors import NotFound
from talaria.core.formatting import escape_harmful, format_time
from talaria.core.ids import SessionId
from talaria.core.messages import PROGRAM, File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult

_LONGEST_LINE = 500
_LONGEST_NAME = 60
_BACKTICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))")


class Transcript(Struct, frozen=True):
    """A session with its messages; the content of a JSON export and the source of the other formats."""

    session: Session
    messages: tuple[StoredMessage, ...]


def load_transcript(tx: Transaction, session_id: SessionId) -> Transcript:
    """Return all of a session, or raise `NotFound`."""
    session = tx.sessions.get(session_id)
    if session is None:
        raise NotFound(f"There is no session {session_id}.")
    return Transcript(session, tuple(tx.messages.load(session_id)))


class SessionLine(Struct, frozen=True, tag="session"):
    """First line of a JSON lines export."""

    session: Session


class MessageLine(Struct, frozen=True, tag="message"):
    """Line of a JSON lines export for one message."""

    seq: int
    message: Message


def drop_program_messages(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return a session without messages of the program itself, and the answers to them."""
    remaining, by_program = [], False
    for stored in messages:
        if stored.message.role == "user":
            by_program = stored.message.author == PROGRAM
        if not by_program:
            remaining.append(stored)
    return remaining


def is_mirrored(message: Message) -> bool:
    """Return whether a message was sent to its session from another chat; only those have an author."""
    return message.role == "assistant" and bool(message.author)


def to_json(transcript: Transcript, _zone: tzinfo | None = None) -> str:
    """Return one JSON object, which decodes to an equal `Transcript`."""
    return escape_harmful(msgspec.json.format(msgspec.json.encode(transcript), indent=2).decode()) + "\n"


def to_json_lines(transcript: Transcript, _zone: tzinfo | None = None) -> str:
    """Return a `SessionLine` followed by a `MessageLine` for each message."""
    lines = [SessionLine(transcript.session), *(MessageLine(one.seq, one.message) for one in transcript.messages)]
    return escape_harmful(b"".join(msgspec.json.encode(line) + b"\n" for line in lines).decode())


def to_markdown(transcript: Transcript, zone: tzinfo | None = None) -> str:
    """Return a document with a heading for each message; no message can break out of its section."""
    session = transcript.session
    blocks = [f"# {' '.join(session.title.split()) or 'Session ' + session.id}", _format_facts(session, zone)]
    for stored in transcript.messages:
        blocks.append(_format_heading(stored.message, zone))
        blocks += [block for part in stored.message.parts if (block := _block(part))]
    return "\n\n".join(blocks) + "\n"


def export_file_name(session: Session, suffix: str) -> str:
    """Return a name that starts with the id, followed by the allowed characters of the title."""
    words = "".join(character if character.isalnum() else " " for character in session.title.lower())
    name = "-".join([session.id.replace("/", "_"), *words[:_LONGEST_NAME].split()])
    return f"{name}.{suffix}"


def summarize_part(part: Part) -> str:
    """Return a short description of a part."""
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


def _format_facts(session: Session, zone: tzinfo | None) -> str:
    facts = {
        "Session": f"`{session.id}`",
        "Source": session.source,
        "Model": session.model,
        "Started": format_time(session.created_at, zone),
        "Last used": format_time(session.updated_at, zone),
        "Messages": str(session.message_count),
    }
    return "\n".join(f"- {name}: {' '.join(value.split())}" for name, value in facts.items() if value)


def _format_heading(message: Message, zone: tzinfo | None) -> str:
    words = [message.role.capitalize(), " ".join(message.author.split()), format_time(message.at, zone)]
    return f"## {' · '.join(filter(None, words))}"


def _block(part: Part) -> str:
    match part:
        case Text():
            return close_fence(part.text.strip("\n"))
        case Reasoning():
            return f"Thought:\n\n{format_code_block(part.text)}"
        case ToolCall():
            return f"Tool call {format_inline_code(part.name)}:\n\n{format_code_block(part.arguments, 'json')}"
        case ToolResult():
            return f"{'Tool failure' if part.failed else 'Tool result'}:\n\n{format_code_block(part.text)}"
        case Image():
            return f"Image: {format_inline_code(part.source)}"
        case File():
            return f"File {format_inline_code(part.name)}: {format_inline_code(part.source)}"
        case _:
            assert_never(part)


def format_code_block(text: str, language: str = "") -> str:
    """Return text in a code block whose fence is longer than any run of backticks in it."""
    fence = "`" * max(3, _measure_longest_run(text) + 1)
    return "\n".join([fence + language, *([text.rstrip("\n")] if text else []), fence])


def format_inline_code(text: str) -> str:
    """Return text as inline code on one line, with enough backticks around it."""
    ticks = "`" * (_measure_longest_run(text) + 1)
    inner = " ".join(text.split())
    return f"{ticks} {inner} {ticks}" if "`" in inner else f"{ticks}{inner}{ticks}"


def _measure_longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


def close_fence(text: str) -> str:
    """Return Markdown with its last fence closed, so that the following text isn't code."""
    fence = ""
    for marks, rest in _iterate_fences(text):
        if not fence:
            fence = marks
        elif marks[0] == fence[0] and len(marks) >= len(fence) and not rest:
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _iterate_fences(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        if found := _FENCE.fullmatch(line):
            yield found[1] or found[3], (found[2] or found[4] or "").strip()
