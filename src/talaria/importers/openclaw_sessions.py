"""Sessions of OpenClaw: an SQLite file for each agent, and transcripts as JSON lines of older versions."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from talaria.contracts.imports import ForeignSession, ForeignSummary, ForeignTranscript
from talaria.core.addresses import Address, ChatType
from talaria.core.errors import Refused
from talaria.core.messages import Image, Message, Part, Text, ToolResult, Usage, text_of
from talaria.importers.foreign_files import (
    as_count,
    as_table,
    as_text,
    list_columns,
    open_copy,
    read_json_lines,
    read_time,
)
from talaria.importers.wire_parts import read_content

_NETWORKS = {"telegram", "discord", "slack", "matrix"}
_CHAT_TYPES: Mapping[str, ChatType] = {
    "direct": "private",
    "dm": "private",
    "group": "group",
    "room": "group",
    "channel": "channel",
    "thread": "thread",
}
_MICRODOLLARS = 1_000_000
_INTERNAL = ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
Event = Mapping[str, Any]


class OpenClawSessions:
    """The sessions of one agent, from its SQLite file and its folder of older transcripts."""

    def __init__(self, agent: str, database: Path, folder: Path) -> None:
        self._agent = agent
        self._connection = open_copy(database) if database.is_file() else None
        self._folder = folder
        self._entries: dict[str, Mapping[str, Any]] = {}
        if self._connection is not None and not list_columns(self._connection, "transcript_events"):
            raise Refused(f"{database.name} has no transcripts that Talaria knows.")

    def list_all(self) -> Iterator[ForeignSession]:
        """Yield every session that has messages, those of the SQLite file first."""
        self._read_entries()
        seen: set[str] = set()
        for session_id, version in self._list_stored():
            events, _ = self._read_events(session_id)
            if (session := self._to_session(session_id, version, events)) is not None:
                seen.add(session_id)
                yield session
        for file in sorted(self._folder.glob("*.jsonl")):
            status = file.stat()
            if file.stem not in seen:
                events, _ = self._read_events(file.stem)
                if session := self._to_session(file.stem, f"{status.st_size}-{status.st_mtime_ns}", events):
                    yield session

    def read(self, session: ForeignSession) -> ForeignTranscript:
        """Return the messages of a session on its active branch."""
        events, broken = self._read_events(session.key.partition("/")[2])
        messages: list[Message] = []
        summary: ForeignSummary | None = None
        for event in follow_branch(events):
            if event.get("type") == "compaction" and (text := as_text(event.get("summary"))):
                summary = ForeignSummary(len(messages), text)
            elif (message := _to_message(event)) is not None:
                messages.append(message)
        problems = [f"{broken} of its entries can't be read."] if broken else []
        return ForeignTranscript(messages, 0, tuple(problems), summary)

    def read_sign_ins(self) -> Iterator[Mapping[str, Any]]:
        """Yield the keys and sign-ins of the agent."""
        if self._connection is not None and list_columns(self._connection, "auth_profile_store"):
            for (text,) in self._connection.execute("SELECT store_json FROM auth_profile_store"):
                yield from map(as_table, as_table(as_table(_decode(text)).get("profiles")).values())

    def close(self) -> None:
        """Close the copy."""
        if self._connection is not None:
            self._connection.close()

    def _list_stored(self) -> Iterator[tuple[str, str]]:
        if self._connection is not None:
            yield from (
                (str(session_id), f"{last}-{count}")
                for session_id, last, count in self._connection.execute(
                    "SELECT session_id, max(seq), count(*) FROM transcript_events GROUP BY session_id"
                ).fetchall()
            )

    def _read_events(self, session_id: str) -> tuple[list[Event], int]:
        """Return the entries of a transcript, and how many of them can't be read."""
        found: Iterable[Any]
        file = self._folder / f"{session_id}.jsonl"
        rows = []
        if self._connection is not None:
            rows = self._connection.execute(
                "SELECT event_json FROM transcript_events WHERE session_id = ? ORDER BY seq", (session_id,)
            ).fetchall()
        if rows:
            found = [_decode(text) for (text,) in rows]
        elif file.is_file():
            found = [entry for _, entry in read_json_lines(file)]
        else:
            found = []
        events: list[Event] = [entry for entry in found if isinstance(entry, dict)]
        return events, sum(not isinstance(entry, dict) for entry in found)

    def _read_entries(self) -> None:
        """Read the facts about sessions: of the SQLite file, and of ``sessions.json`` of older versions."""
        older = _decode((self._folder / "sessions.json").read_bytes()) if self._has_older_entries() else {}
        for key, entry in as_table(older).items():
            self._add_entry(str(key), as_table(entry))
        if self._connection is not None and list_columns(self._connection, "session_nodes"):
            for key, text in self._connection.execute("SELECT session_key, entry_json FROM session_nodes"):
                self._add_entry(str(key), as_table(_decode(text)))

    def _has_older_entries(self) -> bool:
        return (self._folder / "sessions.json").is_file()

    def _add_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        self._entries[as_text(entry.get("sessionId"))] = {**entry, "session_key": key}

    def _to_session(self, session_id: str, version: str, events: list[Event]) -> ForeignSession | None:
        active = follow_branch(events)
        spoken = [message for event in active if (message := _to_message(event)) is not None]
        if not spoken:
            return None
        entry = self._entries.get(session_id, {})
        head = as_table(next((event for event in events if event.get("type") == "session"), {}))
        title = _find_title(entry, events)
        address = _find_address(as_text(entry.get("session_key")), entry)
        return ForeignSession(
            key=f"{self._agent}/{session_id}",
            version=f"{version}-{zlib.crc32(title.encode()):08x}",
            source=address.platform if address else _find_source(as_text(entry.get("session_key"))),
            created_at=read_time(head.get("timestamp")) or spoken[0].at,
            updated_at=spoken[-1].at,
            message_count=len(spoken),
            title=title,
            model=next((message.model for message in reversed(spoken) if message.model), ""),
            folder=as_text(head.get("cwd")),
            address=address,
            is_current=bool(entry) and address is not None,
            is_archived=bool(entry.get("archivedAt")),
            usage=_add_usage(active),
            turns=sum(message.role == "user" for message in spoken),
        )


def follow_branch(events: list[Event]) -> list[Event]:
    """Return the entries of the branch that ends with the last one; entries without parents are all on it."""
    by_id = {event["id"]: event for event in events if isinstance(event.get("id"), str)}
    if not any(event.get("parentId") for event in events):
        return events
    current = next((event for event in reversed(events) if event.get("id") in by_id and "parentId" in event), None)
    chain: list[Event] = []
    while current is not None and len(chain) <= len(events):
        chain.append(current)
        current = by_id.get(current.get("parentId") or "")
    return chain[::-1]


def _to_message(event: Event) -> Message | None:
    if event.get("type") != "message":
        return None
    message = as_table(event.get("message"))
    role = message.get("role")
    parts = read_content(message.get("content"))
    if role == "user":
        parts = [_strip_context(part) for part in parts]
    if role in {"toolResult", "tool"}:
        call_id = as_text(message.get("toolCallId")) or as_text(message.get("tool_call_id"))
        texts = [part for part in parts if isinstance(part, Text)]
        result = ToolResult(call_id, text_of(tuple(texts)), bool(message.get("isError")))
        parts = [result, *(part for part in parts if isinstance(part, Image))]
    elif role == "bashExecution":
        parts = [Text(f"$ {as_text(message.get('command'))}\n{as_text(message.get('output'))}")]
    elif role not in {"user", "assistant"}:
        return None
    parts = [part for part in parts if not isinstance(part, Text) or part.text]
    if not parts:
        return None
    moment = read_time(message.get("timestamp")) or read_time(event.get("timestamp"))
    return Message(
        role="assistant" if role == "assistant" else "tool" if role in {"toolResult", "tool"} else "user",
        parts=tuple(parts),
        at=moment or datetime.fromtimestamp(0, UTC),
        model=as_text(message.get("model")) if role == "assistant" else "",
        tokens=as_count(as_table(message.get("usage")).get("output")) or None if role == "assistant" else None,
    )


def _strip_context(part: Part) -> Part:
    """Return a part without what OpenClaw itself has added to the text of a person."""
    if not isinstance(part, Text) or _INTERNAL[0] not in part.text:
        return part
    before, _, rest = part.text.partition(_INTERNAL[0])
    return Text(f"{before}{rest.partition(_INTERNAL[1])[2]}".strip())


def _find_title(entry: Mapping[str, Any], events: list[Event]) -> str:
    named = [as_text(event.get("name")) for event in events if event.get("type") == "session_info"]
    given = [as_text(entry.get(name)) for name in ("label", "displayName", "subject", "title")]
    return next((title for title in (*reversed(named), *given) if title), "")


def _find_source(session_key: str) -> str:
    if ":cron:" in session_key:
        return "cron"
    return "subagent" if ":subagent:" in session_key else "cli"


def _find_address(session_key: str, entry: Mapping[str, Any]) -> Address | None:
    """Return the chat of a session key, for example ``agent:main:telegram:group:-5`` or ``…:telegram:direct:7``."""
    parts = session_key.split(":")
    found = next((index for index, part in enumerate(parts) if part in _NETWORKS), None)
    if found is None or len(parts) < found + 3:
        return None
    network, kind, chat, *rest = parts[found:]
    if kind not in _CHAT_TYPES:
        return None
    chat_type = _CHAT_TYPES[kind]
    thread = rest[rest.index("topic" if "topic" in rest else "thread") + 1] if {"topic", "thread"} & set(rest) else ""
    user = chat if chat_type == "private" else as_text(as_table(entry.get("origin")).get("from"))
    return Address(network, chat, chat_type, thread, user.rpartition(":")[2])


def _add_usage(events: list[Event]) -> Usage:
    replies = [as_table(event.get("message")) for event in events]
    usages = [as_table(reply.get("usage")) for reply in replies if reply.get("role") == "assistant"]
    costs = [as_table(usage.get("cost")).get("total") for usage in usages]

    def total(name: str) -> int:
        return sum(as_count(usage.get(name)) for usage in usages)

    return Usage(
        calls=len(usages),
        input_tokens=total("input"),
        output_tokens=total("output"),
        cache_read_tokens=total("cacheRead"),
        cache_write_tokens=total("cacheWrite"),
        reasoning_tokens=total("reasoningTokens"),
        cost_microdollars=round(sum(cost for cost in costs if isinstance(cost, int | float)) * _MICRODOLLARS),
    )


def _decode(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str | bytes) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
