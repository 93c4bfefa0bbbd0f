"""Import of homes that the real Hermes Agent and the real OpenClaw created on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.openclaw_home import HOME as OPENCLAW
from scripts.openclaw_home import is_made
from tests.app.program import Program
from tests.importers.homes import digest_of, messages_of, sessions_of

HERMES = sorted((Path(__file__).parents[2] / ".api-clients").glob("hermes_agent-*.whl"))
TALK = """
from hermes_state import SessionDB
store = SessionDB()
store.create_session("20260102_030405_real01", source="cli", model="big")
call = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
store.append_message("20260102_030405_real01", role="user", content="Which birds are here?")
store.append_message("20260102_030405_real01", role="assistant", content="", tool_calls=[call], reasoning="Look.")
store.append_message("20260102_030405_real01", role="tool", content="gulls", tool_call_id="call_1")
store.append_message("20260102_030405_real01", role="assistant", content="Gulls.")
store.set_session_title("20260102_030405_real01", "Birds")
"""


@pytest.mark.skipif(not HERMES, reason="Hermes Agent isn't installed: `make apiclients` downloads it")
def test_a_store_of_the_real_hermes_is_imported(tmp_path: Path) -> None:
    home = tmp_path / "hermes"
    home.mkdir()
    environment = {"HERMES_HOME": str(home), "HOME": str(home), "PYTHONPATH": str(HERMES[-1])}
    subprocess.run([sys.executable, "-c", TALK], env=environment, check=True)
    before = digest_of(home)
    program = Program(tmp_path / "home")
    done = program.run("import", "hermes", str(home), "--yes", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["summary"]["sessions"] == {"imported": 1}
    messages = messages_of(program, sessions_of(program)["Birds"])
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[-1].text == "Gulls."
    assert digest_of(home) == before


@pytest.mark.skipif(not is_made(), reason="There is no home of OpenClaw: `make openclawhome` makes one")
def test_a_home_of_the_real_openclaw_is_imported(tmp_path: Path) -> None:
    before = digest_of(OPENCLAW)
    program = Program(tmp_path / "home")
    done = program.run("import", "openclaw", str(OPENCLAW), "--yes", "--json", "--owner", "telegram:777")
    assert done.code == 0, done.err
    summary = json.loads(done.out)["summary"]
    assert (summary["sessions"], summary["jobs"]["imported"]) == ({"imported": 1}, 1)
    (session,) = sessions_of(program).values()
    assert [(one.role, one.text) for one in messages_of(program, session)] == [
        ("user", "What grows?"),
        ("assistant", "Roses."),
    ]
    assert "Water" in program.run("cron", "list").out
    profile = program.home / "profiles" / "default"
    config, keys = (profile / "config.toml").read_text(), (profile / ".env").read_text()
    assert 'name = "scripted"' in config
    assert "server-files" in config
    assert "planted" not in config
    assert "LOCAL_API_KEY=sk-planted-0123456789" in keys
    assert "TELEGRAM_BOT_TOKEN=123:planted" in keys
    assert (profile / "memory" / "USER.md").read_text() == "Name is Ada\n"
    assert (profile / "skills" / "notes-from-openclaw" / "memory-2026-03-04.md").read_text() == "Planted roses."
    assert not (profile / "SOUL.md").exists(), "it is the text of the program"
    again = program.run("import", "openclaw", str(OPENCLAW), "--yes", "--json")
    assert json.loads(again.out)["summary"]["sessions"] == {"unchanged": 1}
    assert digest_of(OPENCLAW) == before
