"""Import of homes that the real programs have made here; skipped where they are not installed.

``TALARIA_HERMES_PYTHON`` names the interpreter of a virtual environment with `hermes-agent`.
"""

import json
import subprocess
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.importers.homes import digest_of, messages_of, sessions_of

from talaria.settings.environment import environment_value

HERMES = environment_value("TALARIA_HERMES_PYTHON", "")
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


@pytest.mark.skipif(not HERMES, reason="TALARIA_HERMES_PYTHON doesn't name a Python with hermes-agent")
def test_a_store_of_the_real_hermes_is_imported(tmp_path: Path) -> None:
    home = tmp_path / "hermes"
    home.mkdir()
    subprocess.run([HERMES, "-c", TALK], env={"HERMES_HOME": str(home), "HOME": str(home)}, check=True)
    before = digest_of(home)
    program = Program(tmp_path / "home")
    done = program.run("import", "hermes", str(home), "--yes", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["summary"]["sessions"] == {"imported": 1}
    messages = messages_of(program, sessions_of(program)["Birds"])
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[-1].text == "Gulls."
    assert digest_of(home) == before
