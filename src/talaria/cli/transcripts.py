"""A session as a file: Markdown to read, JSON and JSON lines that hold everything."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import tzinfo
from typing import assert_never

import msgspec
from msgspec import Struct

from talaria.cli.cells import harmless_json
from talaria.cli.timing import clock_time
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import Session
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult

_BACKTICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))")


class Transcript(Struct, frozen=True):
    """The content of a JSON file, and what the other forms are made from."""

    session: Session
    messages: tuple[StoredMessage, ...]


class SessionLine(Struct, frozen=True, tag="session"):
    """The first line of a file of JSON lines."""

    session: Session


class MessageLine(Struct, frozen=True, tag="message"):
    """Every other line of such a file."""

    seq: int
    message: Message


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
            return _closed(part.text.strip("\n"))
        case Reasoning():
            return f"Thought:\n\n{_fenced(part.text)}"
        case ToolCall():
            return f"Tool call {_code(part.name)}:\n\n{_fenced(part.arguments, 'json')}"
        case ToolResult():
            return f"{'Tool failure' if part.failed else 'Tool result'}:\n\n{_fenced(part.text)}"
        case Image():
            return f"Image: {_code(part.source)}"
        case File():
            return f"File {_code(part.name)}: {_code(part.source)}"
        case _:
            assert_never(part)


def _fenced(text: str, language: str = "") -> str:
    """Return text between fences that are longer than any in it."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return "\n".join([fence + language, *([text.rstrip("\n")] if text else []), fence])


def _code(text: str) -> str:
    ticks = "`" * (_longest_run(text) + 1)
    inner = " ".join(text.split())
    return f"{ticks} {inner} {ticks}" if "`" in inner else f"{ticks}{inner}{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


def _closed(text: str) -> str:
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
