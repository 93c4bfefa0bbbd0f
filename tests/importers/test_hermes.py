"""Import of a home of Hermes with `talaria import`."""

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.app.program import Program
from tests.cli.stored_sessions import read, text_message, write
from tests.importers.homes import PIXEL, digest_of, messages_of, sessions_of

from talaria.contracts.stores.turns import DailyUsage
from talaria.core.messages import Image, Reasoning, Text, ToolCall, ToolResult, Usage
from talaria.sessions.model_context import read_summary
from talaria.testing.hermes_home import HermesHome

START = 1_767_348_900.0  # 2026-01-02, 10:15 UTC
TRIP = "20260102_101500_aa11bb"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")


@pytest.fixture
def hermes(tmp_path: Path) -> Iterator[HermesHome]:
    home = HermesHome(tmp_path / "hermes")
    yield home
    home.close()


def add_session(home: HermesHome, session_id: str, *texts: str, started_at: float = START, **columns: Any) -> None:
    """Add a session in which user and assistant alternate."""
    home.add_session(session_id, started_at=started_at, **columns)
    roles = ("user", "assistant")
    home.add_messages(
        session_id,
        [{"role": roles[n % 2], "content": text, "timestamp": started_at + n} for n, text in enumerate(texts)],
    )


def add_trip(home: HermesHome) -> None:
    usage = {"api_call_count": 2, "input_tokens": 120, "output_tokens": 30, "cache_read_tokens": 40}
    home.add_session(TRIP, started_at=START, title="Trip to Lisbon", model="big", estimated_cost_usd=0.0125, **usage)
    call = {"id": "call_1", "type": "function", "function": {"name": "web_search", "arguments": '{"q": "tap"}'}}
    image = {"url": f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"}
    home.add_messages(
        TRIP,
        [
            {"role": "user", "content": "Find flights", "timestamp": START + 1.5, "platform_message_id": "42"},
            {"role": "assistant", "content": "", "tool_calls": [call], "reasoning": "Search.", "timestamp": START + 2},
            {"role": "tool", "content": "TAP 123", "tool_call_id": "call_1", "timestamp": START + 3},
            {
                "role": "user",
                "content": [{"type": "text", "text": "As here"}, {"type": "image_url", "image_url": image}],
                "timestamp": START + 4,
            },
            {"role": "assistant", "content": "It fits.", "timestamp": START + 5, "token_count": 12},
        ],
    )


def import_home(program: Program, home: HermesHome, *options: str) -> dict[str, dict[str, int]]:
    """Import a home and return the number of items by kind and outcome."""
    done = program.run("import", "hermes", str(home.folder), "--yes", "--json", *options)
    assert done.code == 0, done.err
    summary: dict[str, dict[str, int]] = json.loads(done.out)["summary"]
    return summary


def test_imported_session_has_title_times_calls_images_and_usage(program: Program, hermes: HermesHome) -> None:
    add_trip(hermes)
    assert import_home(program, hermes)["sessions"] == {"imported": 1}
    session = sessions_of(program)["Trip to Lisbon"]
    assert (session.source, session.model, session.owner) == ("cli", "big", "")
    assert session.created_at == datetime.fromtimestamp(START, UTC)
    assert session.updated_at == datetime.fromtimestamp(START + 5, UTC)
    assert session.usage == Usage(2, 120, 30, 40, cost_microdollars=12_500)
    first, called, result, picture, last = messages_of(program, session)
    assert (first.text, first.platform_message_id) == ("Find flights", "42")
    assert first.at == datetime.fromtimestamp(START + 1.5, UTC)
    assert called.parts == (Reasoning("Search."), ToolCall("call_1", "web_search", '{"q": "tap"}'))
    assert (result.role, result.parts) == ("tool", (ToolResult("call_1", "TAP 123"),))
    text, image = picture.parts
    assert text == Text("As here")
    assert isinstance(image, Image)
    assert Path(image.source).read_bytes() == PIXEL
    assert Path(image.source).is_relative_to(program.home)
    assert (last.text, last.model, last.tokens) == ("It fits.", "big", 12)


def test_imported_messages_are_searchable_and_counted_on_their_day(program: Program, hermes: HermesHome) -> None:
    add_trip(hermes)
    import_home(program, hermes)
    assert "Trip to Lisbon" in program.run("sessions", "search", "flights").out
    assert read(program, lambda tx: tx.search.count_unindexed()) == 0
    day = datetime.fromtimestamp(START, UTC).date()
    usage = Usage(2, 120, 30, 40, cost_microdollars=12_500)
    assert read(program, lambda tx: tx.usage.by_day("model", day, day)) == [DailyUsage(day, "big", 2, 0, usage)]


def test_import_does_not_change_the_source(program: Program, hermes: HermesHome) -> None:
    add_trip(hermes)
    hermes.write("config.yaml", "model: {provider: openrouter, default: x}\n")
    before = digest_of(hermes.folder)
    assert "state.db-wal" in before, "the store is open, as under a running Hermes"
    import_home(program, hermes)
    program.run("import", "hermes", str(hermes.folder), "--dry-run")
    assert digest_of(hermes.folder) == before


def test_a_dry_run_shows_the_plan_and_writes_nothing(program: Program, hermes: HermesHome) -> None:
    add_trip(hermes)
    hermes.write(".env", "OPENROUTER_API_KEY=sk-or-v1-planted-0123456789\n")
    shown = program.run("import", "hermes", str(hermes.folder), "--dry-run")
    assert shown.code == 0
    assert "1 session" in shown.out
    assert "OPENROUTER_API_KEY" in shown.out
    assert "planted" not in shown.out
    assert not (program.home / "profiles").exists()


def test_import_requires_confirmation(program: Program, hermes: HermesHome) -> None:
    add_trip(hermes)
    refused = program.run("import", "hermes", str(hermes.folder))
    assert refused.code == 1
    assert "--yes" in refused.err
    declined = program.run_on_terminal("import", "hermes", str(hermes.folder), typed="n\n")
    assert declined.code == 1
    assert "Nothing was imported" in declined.out
    assert not (program.home / "profiles" / "default" / "talaria.db").exists()


def test_keys_are_copied_only_after_a_separate_confirmation(program: Program, hermes: HermesHome) -> None:
    hermes.write(".env", "OPENROUTER_API_KEY=sk-or-v1-planted-0123456789\nODD_API_KEY=1234\n")
    declined = program.run_on_terminal("import", "hermes", str(hermes.folder), typed="y\nn\n")
    assert declined.code == 0
    assert program.run("config", "get", "OPENROUTER_API_KEY").code != 0
    accepted = program.run_on_terminal("import", "hermes", str(hermes.folder), typed="y\ny\n")
    assert "planted" not in accepted.out
    assert "Talaria doesn't use it" in accepted.out
    secrets = (program.home / "profiles" / "default" / ".env").read_text()
    assert secrets == "OPENROUTER_API_KEY=sk-or-v1-planted-0123456789\n"


def test_repeated_import_adds_only_new_messages_and_sessions(program: Program, hermes: HermesHome) -> None:
    add_session(hermes, "one", "Hello", "Hi", title="Greeting")
    add_session(hermes, "two", "Bye", "See you", title="Parting", started_at=START + 60)
    assert import_home(program, hermes)["sessions"] == {"imported": 2}
    assert import_home(program, hermes)["sessions"] == {"unchanged": 2}
    hermes.add_messages("one", [{"role": "user", "content": "Again", "timestamp": START + 90}])
    add_session(hermes, "three", "New", title="Third", started_at=START + 120)
    assert import_home(program, hermes)["sessions"] == {"imported": 1, "changed": 1, "unchanged": 1}
    sessions = sessions_of(program)
    assert {title: session.message_count for title, session in sessions.items()} == {
        "Greeting": 3,
        "Parting": 2,
        "Third": 1,
    }
    assert [message.text for message in messages_of(program, sessions["Greeting"])] == ["Hello", "Hi", "Again"]


def test_session_deleted_after_import_is_not_imported_again(program: Program, hermes: HermesHome) -> None:
    add_session(hermes, "one", "Hello", "Hi", title="Greeting")
    import_home(program, hermes)
    assert program.run("sessions", "delete", "Greeting", "--yes").code == 0
    hermes.add_messages("one", [{"role": "user", "content": "Again", "timestamp": START + 90}])
    assert import_home(program, hermes)["sessions"] == {"skipped": 1}
    assert sessions_of(program) == {}


def test_session_continued_in_both_programs_is_not_changed(program: Program, hermes: HermesHome) -> None:
    add_session(hermes, "one", "Hello", "Hi", title="Greeting")
    import_home(program, hermes)
    session = sessions_of(program)["Greeting"]
    write(program, lambda tx: tx.messages.append(session.id, [text_message("Here")]))
    hermes.add_messages("one", [{"role": "user", "content": "There", "timestamp": START + 90}])
    done = program.run("import", "hermes", str(hermes.folder), "--yes")
    assert "continued both here and in Hermes" in done.out
    assert [message.text for message in messages_of(program, session)] == ["Hello", "Hi", "Here"]


def test_a_branch_shares_the_history_that_it_copied(program: Program, hermes: HermesHome) -> None:
    add_session(hermes, "root", "Plan", "Sure", "Go on", "Done", title="Plan")
    copied: dict[str, Any] = {"started_at": START + 60, "parent_session_id": "root"}
    add_session(hermes, "branch", "Plan", "Sure", "Otherwise", title="Plan #2", **copied)
    add_session(hermes, "later", "Summary of before", "Understood", title="Plan #3", **copied)
    import_home(program, hermes)
    sessions = sessions_of(program)
    root, branch, later = (sessions[title] for title in ("Plan", "Plan #2", "Plan #3"))
    assert (branch.parent_id, branch.parent_seq) == (root.id, 2)
    assert [message.text for message in messages_of(program, branch)] == ["Plan", "Sure", "Otherwise"]
    assert (later.parent_id, later.parent_seq) == (root.id, 0)
    hits = program.run("sessions", "search", "Sure").out.splitlines()
    assert len(hits) == 1, "the shared message is stored once"


def test_compacted_session_has_original_messages_and_summary(program: Program, hermes: HermesHome) -> None:
    hermes.add_session("long", started_at=START, title="Long")
    before = [("user", "First"), ("assistant", "One"), ("user", "Second"), ("assistant", "Two")]
    hermes.add_messages(
        "long",
        [
            {"role": role, "content": text, "timestamp": START + n, "active": 0, "compacted": 1}
            for n, (role, text) in enumerate(before)
        ],
    )
    after = [
        ("user", "First"),
        ("user", "[CONTEXT COMPACTION — REFERENCE ONLY] They counted."),
        ("user", "Second"),
        ("assistant", "Two"),
        ("user", "Third"),
    ]
    hermes.add_messages(
        "long", [{"role": role, "content": text, "timestamp": START + 10 + n} for n, (role, text) in enumerate(after)]
    )
    withdrawn = {"role": "user", "content": "Oops", "timestamp": START + 20, "active": 0}
    hermes.add_messages("long", [withdrawn])
    import_home(program, hermes)
    session = sessions_of(program)["Long"]
    texts = [message.text for message in messages_of(program, session)]
    assert texts == ["First", "One", "Second", "Two", "Third"]
    summary = read(program, lambda tx: read_summary(tx, session.id))
    assert summary is not None
    assert summary.summary.upto == 2
    assert "They counted." in summary.summary.text


def test_imported_chat_is_bound_to_its_session(program: Program, hermes: HermesHome) -> None:
    chat: dict[str, Any] = {"user_id": "777", "chat_id": "777", "chat_type": "dm", "source": "telegram"}
    add_session(hermes, "chat", "Hello", "Hi", title="Chat", **chat)
    group: dict[str, Any] = {"user_id": "888", "chat_id": "-5", "chat_type": "group", "source": "telegram"}
    add_session(hermes, "group", "Hey", "Ho", title="Group", **group)
    origin = {"platform": "telegram", "chat_id": "777", "chat_type": "dm", "user_id": "777"}
    hermes.add_route("agent:main:telegram:dm:777", "chat", origin)
    hermes.write(".env", "TELEGRAM_ALLOWED_USERS=777,888\nTELEGRAM_HOME_CHANNEL=777\n")
    import_home(program, hermes, "--owner", "telegram:777")
    sessions = sessions_of(program)
    assert (sessions["Chat"].owner, sessions["Chat"].audience) == ("", "")
    assert (sessions["Group"].owner, sessions["Group"].audience) == ("telegram:888", "telegram/-5")
    binding = read(program, lambda tx: tx.bindings.get("agent:main:telegram:private:777"))
    assert binding is not None
    assert binding.session_id == sessions["Chat"].id
    assert program.run("config", "get", "access.owners").out.strip() == "telegram:777"
    assert program.run("config", "get", "access.allowed").out.strip() == "telegram:777, telegram:888"


def test_settings_mcp_servers_and_personalities_are_imported(program: Program, hermes: HermesHome) -> None:
    hermes.write(
        "config.yaml",
        """\
model: {default: anthropic/claude-sonnet-5, provider: openrouter}
timezone: Europe/Berlin
agent: {max_turns: 44}
personalities: {captain: Speak like a captain.}
mcp_servers:
  github: {command: npx, args: [-y, server-github], env: {GITHUB_TOKEN: ghp_planted0123456789, MODE: fast}}
  remote: {url: "https://example.com/mcp", headers: {Authorization: Bearer planted-0123456789}, timeout: 60}
  old: {url: "https://example.com/sse"}
""",
    )
    hermes.write("SOUL.md", "Be terse and kind.\n")
    outcome = import_home(program, hermes)
    assert outcome["MCP servers"] == {"imported": 2, "skipped": 1}
    profile = program.home / "profiles" / "default"
    config = (profile / "config.toml").read_text()
    assert "planted" not in config
    assert 'Authorization = "Bearer ${MCP_REMOTE_AUTHORIZATION}"' in config
    assert "GITHUB_TOKEN=ghp_planted0123456789" in (profile / ".env").read_text()
    assert program.run("config", "get", "model.provider").out.strip() == "openrouter"
    assert program.run("config", "get", "agent.max_iterations").out.strip() == "44"
    assert (profile / "SOUL.md").read_text() == "Be terse and kind.\n"
    assert (profile / "personalities" / "captain.md").read_text() == "Speak like a captain.\n"
    assert program.run("config", "check").code == 0


def test_existing_settings_and_files_are_not_replaced(program: Program, hermes: HermesHome) -> None:
    program.run("config", "set", "model.name", "mine")
    profile = program.home / "profiles" / "default"
    (profile / "SOUL.md").write_text("Mine.\n")
    hermes.write("config.yaml", "model: {default: theirs, provider: openrouter}\n")
    hermes.write("SOUL.md", "Theirs.\n")
    done = program.run("import", "hermes", str(hermes.folder), "--yes")
    assert "It is set to mine here" in done.out
    assert program.run("config", "get", "model.name").out.strip() == "mine"
    assert (profile / "SOUL.md").read_text() == "Mine.\n"


def test_memory_beyond_the_limit_becomes_a_skill(program: Program, hermes: HermesHome) -> None:
    entries = [f"Fact {number}: {'word ' * 60}".strip() for number in range(12)]
    hermes.write("memories/MEMORY.md", "\n§\n".join([*entries, "The password is hunter2-and-more"]))
    hermes.write("memories/USER.md", "Name is Ada\n")
    outcome = import_home(program, hermes)["memory"]
    assert (outcome["skipped"], outcome["imported"] + outcome["changed"]) == (1, 14)
    profile = program.home / "profiles" / "default"
    memory = (profile / "memory" / "MEMORY.md").read_text()
    notes = (profile / "skills" / "notes-from-hermes" / "memory.md").read_text()
    assert [entry for entry in entries if entry not in memory] == notes.split("\n\n")
    assert (profile / "memory" / "USER.md").read_text() == "Name is Ada\n"
    assert import_home(program, hermes)["memory"].keys() <= {"unchanged", "changed", "skipped"}


def test_own_skills_are_copied_and_bundled_ones_are_not(program: Program, hermes: HermesHome) -> None:
    hermes.write(
        "skills/travel/flight_finder/SKILL.md", "---\nname: flight_finder\ndescription: Flights\n---\n\nLook.\n"
    )
    hermes.write("skills/travel/flight_finder/scripts/find.py", "print(1)\n")
    hermes.write("skills/dogfood/SKILL.md", "---\nname: dogfood\ndescription: Test\n---\n\nTest.\n")
    hermes.write("skills/.bundled_manifest", "dogfood:\n")
    hermes.write("skills/broken/SKILL.md", "no front matter\n")
    assert import_home(program, hermes)["skills"] == {"changed": 1, "skipped": 2}
    skill = program.home / "profiles" / "default" / "skills" / "flight-finder"
    assert (skill / "SKILL.md").read_text().startswith("---\nname: flight-finder\n")
    assert (skill / "scripts" / "find.py").read_text() == "print(1)\n"


def test_jobs_are_imported_once_and_paused(program: Program, hermes: HermesHome) -> None:
    jobs = [
        {"id": "a1", "name": "News", "prompt": "Read the news", "schedule": {"kind": "cron", "expr": "0 7 * * *"}},
        {"id": "b2", "name": "Water", "prompt": "Drink", "schedule": {"kind": "interval", "minutes": 90}},
        {"id": "c3", "name": "Past", "prompt": "Too late", "schedule": {"kind": "once", "run_at": "2020-01-01T00:00"}},
    ]
    hermes.write("cron/jobs.json", json.dumps({"jobs": [{**job, "deliver": "local", "enabled": True} for job in jobs]}))
    assert import_home(program, hermes)["jobs"] == {"imported": 2, "skipped": 1}
    listed = json.loads(program.run("cron", "list", "--json").out)
    assert {job["name"]: (job["state"], job["prompt"]) for job in listed} == {
        "News": ("paused", "Read the news"),
        "Water": ("paused", "Drink"),
    }
    assert import_home(program, hermes)["jobs"] == {"unchanged": 2, "skipped": 1}


def test_paired_people_are_imported(program: Program, hermes: HermesHome) -> None:
    people = {"777": {"user_name": "Ada", "approved_at": START}}
    hermes.write("pairing/telegram-approved.json", json.dumps(people))
    hermes.write("pairing/whatsapp-approved.json", json.dumps(people))
    assert import_home(program, hermes)["people"] == {"imported": 1, "skipped": 1}
    assert "777" in program.run("pairing", "people").out
    assert import_home(program, hermes)["people"] == {"unchanged": 1, "skipped": 1}


def test_each_broken_file_is_reported_in_one_line(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "hermes"
    (folder / "cron").mkdir(parents=True)
    (folder / "state.db").write_bytes(b"not a database at all" * 100)
    (folder / "config.yaml").write_text("model: [unclosed\n")
    (folder / "cron" / "jobs.json").write_text("{")
    (folder / "SOUL.md").write_text("Still here.\n")
    done = program.run("import", "hermes", str(folder), "--yes")
    assert done.code == 0
    assert "Traceback" not in done.out + done.err
    for name in ("state.db", "config.yaml", "cron/jobs.json"):
        assert len([line for line in done.out.splitlines() if line.strip().startswith(f"{_kind(name)}: {name}")]) == 2
    assert (program.home / "profiles" / "default" / "SOUL.md").read_text() == "Still here.\n"


def _kind(name: str) -> str:
    return {"state.db": "sessions", "config.yaml": "settings"}.get(name, "jobs")


def test_invalid_messages_are_reported_and_the_rest_is_imported(program: Program, hermes: HermesHome) -> None:
    hermes.add_session("odd", started_at=START, title="Odd")
    bad_image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}
    hermes.add_messages(
        "odd",
        [
            {"role": "user", "content": "Good\x00 text", "timestamp": START},
            {"role": "session_meta", "content": "x", "timestamp": START},
            {"role": "user", "content": [bad_image], "timestamp": START},
            {"role": "assistant", "content": "\x00json:{broken", "timestamp": START},
        ],
    )
    hermes.change("UPDATE messages SET tool_calls = '{not json' WHERE role = 'assistant'")
    done = program.run("import", "hermes", str(hermes.folder), "--yes")
    assert "session_meta" in done.out
    texts = [message.text for message in messages_of(program, sessions_of(program)["Odd"])]
    assert texts == ["Good\ufffd text", "[image not imported: its data isn't valid base64]", "{broken"]


def test_folder_that_is_no_hermes_home_is_refused(program: Program, tmp_path: Path) -> None:
    refused = program.run("import", "hermes", str(tmp_path), "--yes")
    assert (refused.code, "isn't a home of Hermes" in refused.err) == (1, True)
    missing = program.run("import", "hermes", str(tmp_path / "nowhere"), "--yes")
    assert (missing.code, "There is no folder" in missing.err) == (1, True)


def test_a_killed_import_is_completed_by_the_next(program: Program, hermes: HermesHome) -> None:
    for number in range(60):
        texts = [f"Message {number}-{index}" for index in range(200)]
        add_session(hermes, f"s{number:03}", *texts, started_at=START + number * 1000, title=f"Title {number}")
    command = [sys.executable, "-m", "tests.importers.killed_import", "hermes", str(hermes.folder), "3"]
    killed = subprocess.run(command, env=program.environment(), check=False)
    assert killed.returncode == -signal.SIGKILL
    halfway = sessions_of(program)
    assert len(halfway) == 30
    assert {session.message_count for session in halfway.values()} == {200}
    assert import_home(program, hermes)["sessions"] == {"imported": 30, "unchanged": 30}
    everything = sessions_of(program)
    assert len(everything) == 60
    assert {session.message_count for session in everything.values()} == {200}
    assert "Title 59" in program.run("sessions", "search", '"Message 59-199"').out


def test_sessions_are_imported_into_postgresql(program: Program, hermes: HermesHome, postgres_url: str) -> None:
    add_trip(hermes)
    add_session(hermes, "odd", "With a \x00 zero", title="Zero", started_at=START + 60)
    server = {"TALARIA__STORE__URL": postgres_url, "TALARIA__STORE__SCHEMA": "imported_hermes"}
    for outcome in ("imported", "unchanged"):
        done = program.run("import", "hermes", str(hermes.folder), "--yes", "--json", env=server)
        assert done.code == 0, done.err
        assert json.loads(done.out)["summary"]["sessions"] == {outcome: 2}
    assert "Trip to Lisbon" in program.run("sessions", "search", "TAP", env=server).out
