"""A home of Hermes Agent 0.19, written with the tables and files that the real program makes."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 22
_TEXT, _REAL, _COUNT = "TEXT", "REAL", "INTEGER DEFAULT 0"
_FLAG = "INTEGER NOT NULL DEFAULT 0"
_SESSIONS: Mapping[str, str] = {
    "id": "TEXT PRIMARY KEY", "source": "TEXT NOT NULL", "user_id": _TEXT, "session_key": _TEXT, "chat_id": _TEXT,
    "chat_type": _TEXT, "thread_id": _TEXT, "display_name": _TEXT, "origin_json": _TEXT, "expiry_finalized": _COUNT,
    "model": _TEXT, "model_config": _TEXT, "system_prompt": _TEXT, "parent_session_id": _TEXT,
    "started_at": "REAL NOT NULL", "ended_at": _REAL, "end_reason": _TEXT, "message_count": _COUNT,
    "tool_call_count": _COUNT, "input_tokens": _COUNT, "output_tokens": _COUNT, "cache_read_tokens": _COUNT,
    "cache_write_tokens": _COUNT, "reasoning_tokens": _COUNT, "cwd": _TEXT, "git_branch": _TEXT,
    "git_repo_root": _TEXT, "billing_provider": _TEXT, "billing_base_url": _TEXT, "billing_mode": _TEXT,
    "estimated_cost_usd": _REAL, "actual_cost_usd": _REAL, "cost_status": _TEXT, "cost_source": _TEXT,
    "pricing_version": _TEXT, "title": _TEXT, "api_call_count": _COUNT, "handoff_state": _TEXT,
    "handoff_platform": _TEXT, "handoff_error": _TEXT, "compression_failure_cooldown_until": _REAL,
    "compression_failure_error": _TEXT, "compression_fallback_streak": _FLAG, "profile_name": _TEXT,
    "rewind_count": _FLAG, "archived": _FLAG,
}  # fmt: skip
_MESSAGES: Mapping[str, str] = {
    "id": "INTEGER PRIMARY KEY AUTOINCREMENT", "session_id": "TEXT NOT NULL", "role": "TEXT NOT NULL",
    "content": _TEXT, "tool_call_id": _TEXT, "tool_calls": _TEXT, "tool_name": _TEXT, "effect_disposition": _TEXT,
    "timestamp": "REAL NOT NULL", "token_count": "INTEGER", "finish_reason": _TEXT, "reasoning": _TEXT,
    "reasoning_content": _TEXT, "reasoning_details": _TEXT, "codex_reasoning_items": _TEXT,
    "codex_message_items": _TEXT, "platform_message_id": _TEXT, "observed": _COUNT,
    "active": "INTEGER NOT NULL DEFAULT 1", "compacted": _FLAG, "api_content": _TEXT,
}  # fmt: skip
_ROUTES: Mapping[str, str] = {
    "scope": "TEXT NOT NULL DEFAULT ''", "session_key": "TEXT NOT NULL", "entry_json": "TEXT NOT NULL",
    "updated_at": "REAL NOT NULL",
}  # fmt: skip


class HermesHome:
    """A home whose store stays open, as under a running Hermes, until `close`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._store = sqlite3.connect(folder / "state.db", isolation_level=None)
        self._store.execute("PRAGMA journal_mode = WAL")
        self._store.execute("PRAGMA synchronous = OFF")
        tables = {"sessions": _SESSIONS, "messages": _MESSAGES, "gateway_routing": _ROUTES}
        tables["schema_version"] = {"version": "INTEGER NOT NULL"}
        for table, columns in tables.items():
            described = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            self._store.execute(f"CREATE TABLE IF NOT EXISTS {table} ({described})")
        self._store.execute("CREATE INDEX IF NOT EXISTS idx_messages_session ON messages(session_id, timestamp)")
        self._store.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))

    def add_session(self, session_id: str, *, started_at: float, **columns: Any) -> None:
        """Add a session; other columns keep their defaults."""
        self._insert("sessions", [{"id": session_id, "source": "cli", "started_at": started_at, **columns}])

    def add_messages(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Add messages with these columns; lists are stored as Hermes stores them, tool calls as JSON."""
        rows = [{"session_id": session_id, **_encode(message)} for message in messages]
        self._insert("messages", rows)

    def add_route(self, session_key: str, session_id: str, origin: Mapping[str, Any], at: float = 0.0) -> None:
        """Let a chat continue with a session."""
        entry = json.dumps({"session_key": session_key, "session_id": session_id, "origin": origin})
        self._insert("gateway_routing", [{"session_key": session_key, "entry_json": entry, "updated_at": at}])

    def change(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run a statement on the store."""
        self._store.execute(statement, values)

    def write(self, name: str, text: str) -> Path:
        """Write a file of the home."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def close(self) -> None:
        """Close the store, which moves its log into the file."""
        self._store.close()

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._store.execute("BEGIN")
        for row in rows:
            columns, marks = ", ".join(row), ", ".join("?" * len(row))
            statement = f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608 (columns are named by tests)
            self._store.execute(statement, tuple(row.values()))
        self._store.execute("COMMIT")


def _encode(message: Mapping[str, Any]) -> dict[str, Any]:
    row = dict(message)
    if isinstance(row.get("content"), list):
        row["content"] = f"\x00json:{json.dumps(row['content'])}"
    if "tool_calls" in row:
        row["tool_calls"] = json.dumps(row["tool_calls"])
    return row
