"""Sessions in Hermes' ``state.db``, read from a private copy."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec

from talaria.contracts.imports import ForeignSession, ForeignSummary, ForeignTranscript
from talaria.core.addresses import Address, ChatType
from talaria.core.errors import Refused
from talaria.core.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage, text_of
from talaria.importers.foreign_files import as_count, as_list, as_table, as_text, list_columns, open_copy, read_time
from talaria.importers.wire_parts import count_shared, is_same_message, read_call, read_content

_JSON = "\x00json:"  # marks content that is a list of parts
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
_CHAT_TYPES: Mapping[str, ChatType] = {
    "dm": "private",
    "private": "private",
    "group": "group",
    "forum": "group",
    "channel": "channel",
    "thread": "thread",
}
_SOURCES = {"api_server": "api", "tui": "cli", "dashboard": "web"}
_NETWORKS = {"telegram", "discord", "slack", "matrix"}
_SESSION_COLUMNS = (
    "id", "source", "user_id", "chat_id", "chat_type", "thread_id", "model", "parent_session_id", "started_at",
    "cwd", "title", "archived", "api_call_count", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "reasoning_tokens", "estimated_cost_usd", "actual_cost_usd",
)  # fmt: skip
_MESSAGE_COLUMNS = (
    "role", "content", "tool_call_id", "tool_calls", "timestamp", "token_count", "reasoning", "reasoning_content",
    "platform_message_id", "active", "compacted",
)  # fmt: skip
_MICRODOLLARS = 1_000_000
_MOST_COPIES = 400


class HermesSessions:
    """All sessions of a ``state.db``; raises `Refused` if the file isn't one."""

    def __init__(self, database: Path) -> None:
        self._connection = open_copy(database)
        self._session_columns = self._select("sessions", _SESSION_COLUMNS)
        self._message_columns = self._select("messages", _MESSAGE_COLUMNS)
        self._shortens = {"active", "compacted"} <= set(list_columns(self._connection, "messages"))
        self._models: dict[str, str] = {}
        self._last_read: tuple[str, list[Message]] = ("", [])

    def list_all(self) -> Iterator[ForeignSession]:
        """Yield every session that has messages."""
        try:
            stats = self._count_messages()
            routes = self._read_routes()
            rows = self._connection.execute(f"SELECT {self._session_columns} FROM sessions").fetchall()
        except apsw.Error as error:
            raise Refused(f"state.db can't be read: {error}.") from error
        for row in rows:
            session: dict[str, Any] = dict(zip(_SESSION_COLUMNS, row, strict=True))
            if (counted := stats.get(session["id"])) is not None:
                self._models[session["id"]] = as_text(session["model"])
                yield _to_session(session, counted, routes)

    def read(self, session: ForeignSession) -> ForeignTranscript:
        """Return the messages of a session: also those that Hermes has summarised, without those taken back."""
        messages, summary, problems = self._read(session.key)
        shared = 0
        if session.parent:
            shared = count_shared(messages, self._read_parent(session.parent))
        self._last_read = (session.key, messages)
        return ForeignTranscript(messages, shared, tuple(problems), summary)

    def close(self) -> None:
        """Close the copy."""
        self._connection.close()

    def _read_parent(self, key: str) -> list[Message]:
        return self._last_read[1] if self._last_read[0] == key else self._read(key)[0]

    def _read(self, key: str) -> tuple[list[Message], ForeignSummary | None, list[str]]:
        try:
            rows = self._connection.execute(
                f"SELECT {self._message_columns} FROM messages WHERE session_id = ? ORDER BY id", (key,)
            ).fetchall()
        except apsw.Error as error:
            raise Refused(f"Its messages can't be read: {error}.") from error
        read = _TranscriptReader(self._models.get(key, ""))
        read.read(rows)
        return read.messages, read.summary, read.problems()

    def _select(self, table: str, columns: Sequence[str]) -> str:
        present = set(list_columns(self._connection, table))
        if not present:
            raise Refused(f"state.db has no table {table}. It isn't the store of a Hermes that Talaria knows.")
        return ", ".join(name if name in present else f"NULL AS {name}" for name in columns)

    def _count_messages(self) -> dict[str, tuple[int, int, float, int]]:
        visible = " WHERE active IS NOT 0 OR compacted = 1" if self._shortens else ""
        rows = self._connection.execute(
            "SELECT session_id, count(*), max(id), max(timestamp), sum(role = 'user') FROM messages"
            f"{visible} GROUP BY session_id"
        )
        return {session: (count, last, at, turns) for session, count, last, at, turns in rows}

    def _read_routes(self) -> dict[str, Mapping[str, Any]]:
        """Return the origin of each session that a chat currently continues."""
        if not list_columns(self._connection, "gateway_routing"):
            return {}
        found: dict[str, Mapping[str, Any]] = {}
        for (text,) in self._connection.execute("SELECT entry_json FROM gateway_routing ORDER BY updated_at"):
            entry = as_table(_decode(text))
            found[as_text(entry.get("session_id"))] = as_table(entry.get("origin"))
        return found


def _to_session(
    row: Mapping[str, Any], counted: tuple[int, int, float, int], routes: Mapping[str, Mapping[str, Any]]
) -> ForeignSession:
    count, last_id, last_at, turns = counted
    started = read_time(row["started_at"]) or read_time(last_at) or datetime.now(UTC)
    updated = max(filter(None, (started, read_time(last_at))))
    title, source = as_text(row["title"]), as_text(row["source"]) or "cli"
    cost = row["actual_cost_usd"] or row["estimated_cost_usd"] or 0
    return ForeignSession(
        key=row["id"],
        version=f"{last_id}-{count}-{zlib.crc32(title.encode()):08x}",
        source=_SOURCES.get(source, source),
        created_at=started,
        updated_at=updated,
        message_count=count,
        title=title,
        model=as_text(row["model"]),
        parent=as_text(row["parent_session_id"]),
        folder=as_text(row["cwd"]),
        address=_find_address(source, row, routes.get(row["id"], {})),
        is_current=row["id"] in routes,
        is_archived=bool(row["archived"]),
        usage=Usage(
            calls=as_count(row["api_call_count"]),
            input_tokens=as_count(row["input_tokens"]),
            output_tokens=as_count(row["output_tokens"]),
            cache_read_tokens=as_count(row["cache_read_tokens"]),
            cache_write_tokens=as_count(row["cache_write_tokens"]),
            reasoning_tokens=as_count(row["reasoning_tokens"]),
            cost_microdollars=round(cost * _MICRODOLLARS) if isinstance(cost, int | float) else 0,
        ),
        turns=turns or 0,
    )


def _find_address(source: str, row: Mapping[str, Any], origin: Mapping[str, Any]) -> Address | None:
    fields = origin or row
    chat_id, user_id = as_text(fields.get("chat_id")), as_text(fields.get("user_id"))
    if source not in _NETWORKS or not (chat_id or user_id):
        return None
    chat_type = _CHAT_TYPES.get(as_text(fields.get("chat_type")), "private" if not chat_id else "group")
    return Address(source, chat_id or user_id, chat_type, as_text(fields.get("thread_id")), user_id)


class _TranscriptReader:
    """Puts the rows of a session in order.

    When Hermes shortens a session, it stores copies of the first messages, a summary and copies of the last messages
    after the originals. The copies are left out, and the summary is kept with the number of messages it stands for.
    """

    def __init__(self, model: str) -> None:
        self.messages: list[Message] = []
        self.summary: ForeignSummary | None = None
        self._model = model
        self._taken_back = 0
        self._unknown: set[str] = set()

    def read(self, rows: Iterable[Sequence[Any]]) -> None:
        """Read all rows, oldest first."""
        found = [message for row in rows if (message := self._read_row(row)) is not None]
        position = 0
        while position < len(found):
            message = found[position]
            position += 1
            if self.messages and message.role != "tool" and message.text.startswith(_SUMMARIES):
                self._drop_copied_start()
                copied = _count_copies(self.messages, found[position : position + _MOST_COPIES])
                self.summary = ForeignSummary(len(self.messages) - copied, message.text)
                position += copied
            else:
                self.messages.append(message)

    def problems(self) -> list[str]:
        """Return what was left out."""
        found = (
            [f"{self._taken_back} messages that were taken back in Hermes are left out."] if self._taken_back else []
        )
        return found + [f"Messages with the role {role} are left out." for role in sorted(self._unknown)]

    def _read_row(self, row: Sequence[Any]) -> Message | None:
        fields = dict(zip(_MESSAGE_COLUMNS, row, strict=True))
        if fields["active"] == 0 and not fields["compacted"]:
            self._taken_back += 1
            return None
        return self._to_message(fields)

    def _drop_copied_start(self) -> None:
        count = len(self.messages)
        for length in range(min(count // 2, _MOST_COPIES), 0, -1):
            if _are_same(self.messages[count - length :], self.messages[:length]):
                del self.messages[count - length :]
                return

    def _to_message(self, row: Mapping[str, Any]) -> Message | None:
        role = row["role"]
        parts: list[Part] = []
        if role == "assistant":
            if thoughts := as_text(row["reasoning_content"]) or as_text(row["reasoning"]):
                parts.append(Reasoning(thoughts))
            parts += read_content(_decode_content(row["content"]))
            parts += [read_call(as_table(call)) for call in as_list(_decode(row["tool_calls"]))]
        elif role == "tool":
            content = read_content(_decode_content(row["content"]))
            parts = [ToolResult(as_text(row["tool_call_id"]), text_of(tuple(content)))]
            parts += [part for part in content if not isinstance(part, Text | ToolCall | ToolResult)]
        elif role in {"user", "system"}:
            parts += read_content(_decode_content(row["content"]))
        else:
            self._unknown.add(str(role))
            return None
        return Message(
            role="user" if role == "system" else role,
            parts=tuple(parts),
            at=read_time(row["timestamp"]) or datetime.fromtimestamp(0, UTC),
            author="system" if role == "system" else "",
            model=self._model if role == "assistant" else "",
            tokens=as_count(row["token_count"]) or None,
            platform_message_id=as_text(row["platform_message_id"]) or None,
        )


def _are_same(messages: Iterable[Message], others: Iterable[Message]) -> bool:
    return all(is_same_message(one, other) for one, other in zip(messages, others, strict=True))


def _count_copies(messages: Sequence[Message], following: Sequence[Message]) -> int:
    """Return how many of the following messages repeat the last ones."""
    for count in range(min(len(messages), len(following)), 0, -1):
        if _are_same(messages[-count:], following[:count]):
            return count
    return 0


def _decode_content(content: Any) -> Any:
    if not isinstance(content, str) or not content.startswith(_JSON):
        return content
    decoded = _decode(content.removeprefix(_JSON))
    return content.removeprefix(_JSON) if decoded is None else decoded


def _decode(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str | bytes) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
