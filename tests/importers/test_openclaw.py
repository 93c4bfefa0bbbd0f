"""Import of a home of OpenClaw 2026.9, with the tables and files of the real program."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.app.program import Program
from tests.importers.homes import digest_of, messages_of, sessions_of

from talaria.core.messages import Reasoning, Text, ToolCall, ToolResult

START = "2026-03-04T05:06:07.000Z"
CONFIG = """\
{
  // written by hand
  agents: { defaults: { model: { primary: 'local/scripted' } } },
  models: { providers: { local: {
    baseUrl: "http://127.0.0.1:9/v1", apiKey: "sk-planted-0123456789", api: "openai-completions",
  } } },
  channels: { telegram: { botToken: "123:planted", allowFrom: ["777"] }, signal: { allowFrom: ["+49"] } },
  mcp: { servers: { files: { command: "npx", args: ["-y", "server-files"], env: { FILES_API_KEY: "planted-1" } } } },
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")


def write_store(path: Path, tables: Mapping[str, tuple[str, Sequence[tuple[Any, ...]]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    store = sqlite3.connect(path)
    store.execute("PRAGMA journal_mode = WAL")
    for table, (columns, rows) in tables.items():
        store.execute(f"CREATE TABLE {table} ({columns})")
        marks = ", ".join("?" * len(columns.split(",")))
        store.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    store.commit()
    store.close()


def entry(number: int, parent: int | None, **fields: Any) -> dict[str, Any]:
    above = None if parent is None else f"e{parent}"
    return {"type": "message", "id": f"e{number}", "parentId": above, "timestamp": START, **fields}


def make_home(folder: Path) -> Path:
    usage = {"input": 100, "output": 7, "cacheRead": 3, "cacheWrite": 0, "cost": {"total": 0.5}}
    call = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}}
    reply = [{"type": "thinking", "thinking": "Look."}, call]
    events: list[dict[str, Any]] = [
        {"type": "session", "version": 4, "id": "s1", "timestamp": START, "cwd": "/nowhere"},
        {"type": "session_info", "name": "Garden"},
        entry(1, None, message={"role": "user", "content": "What grows?", "timestamp": 1_772_600_767_000}),
        entry(2, 1, message={"role": "assistant", "content": reply, "model": "scripted", "usage": usage}),
        entry(3, 2, message={"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "roses"}]}),
        entry(4, 3, message={"role": "assistant", "content": [{"type": "text", "text": "Thorns."}]}),
        entry(5, 3, message={"role": "assistant", "content": [{"type": "text", "text": "Roses."}]}),
    ]
    rows = [("s1", number, json.dumps(event), 0) for number, event in enumerate(events)]
    node = json.dumps({"sessionId": "s1", "label": ""})
    write_store(
        folder / "agents" / "main" / "agent" / "openclaw-agent.sqlite",
        {
            "transcript_events": ("session_id, seq, event_json, created_at", rows),
            "session_nodes": ("session_key, entry_json", [("agent:main:telegram:direct:777", node)]),
        },
    )
    jobs = [
        {
            "id": "j1",
            "name": "Water",
            "schedule": {"kind": "every", "everyMs": 5_400_000},
            "payload": {"text": "Drink"},
        },
        {"id": "j2", "name": "heartbeat-main", "schedule": {"kind": "every"}, "payload": {"kind": "heartbeat"}},
    ]
    template = "# SOUL\n\nThe text of the program.\n"
    write_store(
        folder / "state" / "openclaw.sqlite",
        {
            "cron_jobs": ("job_json", [(json.dumps(job),) for job in jobs]),
            "channel_pairing_allow_entries": ("channel_key, entry", [("telegram", "999")]),
            "workspace_generated_bootstrap_hashes": ("sha256", [(sha256(template.encode()).hexdigest(),)]),
        },
    )
    workspace = folder / "workspace"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "SOUL.md").write_text(template)
    (workspace / "USER.md").write_text(
        "# USER.md\n\n<!-- status: active -->\n- Name is Ada\n- Likes roses\n  very much\n"
    )
    (workspace / "memory" / "2026-03-04.md").write_text("Planted roses.\n")
    (folder / "openclaw.json").write_text(CONFIG)
    return folder


def test_openclaw_sessions_jobs_settings_memory_and_people_are_imported(program: Program, tmp_path: Path) -> None:
    home = make_home(tmp_path / "openclaw")
    before = digest_of(home)
    done = program.run("import", "openclaw", str(home), "--yes", "--json", "--owner", "telegram:777")
    assert done.code == 0, done.err
    summary = json.loads(done.out)["summary"]
    assert (summary["sessions"], summary["jobs"]) == ({"imported": 1}, {"imported": 1, "skipped": 1})
    assert digest_of(home) == before
    session = sessions_of(program)["Garden"]
    assert (session.source, session.owner, session.model) == ("telegram", "", "scripted")
    assert session.created_at == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert (session.usage.input_tokens, session.usage.cost_microdollars) == (100, 500_000)
    question, called, result, answer = messages_of(program, session)
    assert (question.text, answer.text) == ("What grows?", "Roses.")
    assert called.parts == (Reasoning("Look."), ToolCall("c1", "exec", '{"command": "ls"}'))
    assert result.parts == (ToolResult("c1", "roses"),)
    profile = program.home / "profiles" / "default"
    assert not (profile / "SOUL.md").exists(), "it is the text of the program"
    assert (profile / "memory" / "USER.md").read_text() == "Name is Ada\n§\nLikes roses very much\n"
    assert (profile / "skills" / "notes-from-openclaw" / "memory-2026-03-04.md").read_text() == "Planted roses."
    config = (profile / "config.toml").read_text()
    assert "planted" not in config
    assert 'base_url = "http://127.0.0.1:9/v1"' in config
    assert "LOCAL_API_KEY=sk-planted-0123456789" in (profile / ".env").read_text()
    assert "999" in program.run("pairing", "people").out
    again = program.run("import", "openclaw", str(home), "--yes", "--json")
    assert json.loads(again.out)["summary"]["sessions"] == {"unchanged": 1}


def test_transcripts_of_older_versions_are_read(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "openclaw" / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    lines = [entry(1, None, message={"role": "user", "content": "Old"}), "broken", entry(2, 1, message={"role": "x"})]
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "s9.jsonl").write_text(text)
    (folder / "sessions.json").write_text(json.dumps({"agent:main:main": {"sessionId": "s9", "label": "Older"}}))
    done = program.run("import", "openclaw", str(tmp_path / "openclaw"), "--yes")
    assert "1 of its entries can't be read" in done.out
    assert [message.parts for message in messages_of(program, sessions_of(program)["Older"])] == [(Text("Old"),)]


def test_broken_store_and_config_are_reported(program: Program, tmp_path: Path) -> None:
    home = tmp_path / "openclaw"
    broken = home / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"nothing of the kind " * 200)
    (home / "openclaw.json").write_text("{ broken")
    done = program.run("import", "openclaw", str(home), "--yes")
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert "isn't a usable SQLite file" in done.out
    assert "It isn't valid JSON" in done.out
