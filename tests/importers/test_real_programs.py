"""Import of a home that the real Hermes Agent has made here, from the wheel that `make test` downloads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
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
