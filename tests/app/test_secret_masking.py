"""Secrets of the profile are masked for the model, the store and the screen; long outputs can be read in full."""

import re
from pathlib import Path

import pytest
from tests.app.program_with_model import scripted_program, talk

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.tools.sandbox.bubblewrap import find_sandbox_problem

SECRET = "correct-horse-battery"
SANDBOXED = "[sandbox]\nenabled = true\n"


async def test_secret_in_tool_output_reaches_neither_model_nor_store_nor_screen(
    tmp_path: Path, server: ModelServer
) -> None:
    program = scripted_program(tmp_path, server, secrets=f"SOME_PASSWORD={SECRET}\n")
    (tmp_path / "work" / "notes.txt").write_text(f"the password is {SECRET}\n")
    calls = [
        Ask("terminal", {"command": "cat notes.txt; cat notes.txt >&2; exit 3"}),
        Ask("read_file", {"path": "notes.txt"}),
        Ask("search_files", {"pattern": "password"}),
        Ask("execute_code", {"code": "print(open('notes.txt').read(), tools.read_file(path='notes.txt'))"}),
        Ask("edit_file", {"path": "notes.txt", "old_text": "the password is", "new_text": "it was"}),
    ]
    server.script(*(Say(calls=[call]) for call in calls), Say("Done."))
    done = await talk(program, "chat", "--json", "-q", "look at notes.txt")
    session = (await talk(program, "sessions", "list")).out.split("\t")[0]
    shown = (await talk(program, "sessions", "export", session)).out + (await talk(program, "trace", session)).out
    sent = "".join(call.body.decode() for call in server.received)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "profiles" / "default").glob("talaria.db*"))
    assert len(server.received) == len(calls) + 1
    assert sent.count("«masked secret»") >= len(calls)
    assert SECRET not in sent + done.out + done.err + shown
    assert SECRET.encode() not in stored


@pytest.mark.parametrize("settings", ["", SANDBOXED])
async def test_long_output_of_a_command_can_be_read_in_full(tmp_path: Path, server: ModelServer, settings: str) -> None:
    if settings and find_sandbox_problem() is not None:
        pytest.skip("bubblewrap does not work here")
    program = scripted_program(tmp_path, server, settings)
    server.script(Say(calls=[Ask("terminal", {"command": "seq 20000"})]), Say("Long."))
    await talk(program, "chat", "-q", "count")
    cut = server.received[1].json["messages"][-1]["content"]
    (path,) = re.findall(r"the whole output is in (\S+); use read_file …", cut)
    again = Ask("read_file", {"path": path, "first_line": 10_000, "limit": 2})
    server.script(Say(calls=[again, Ask("terminal", {"command": f"sed -n 12345p {path}"})]), Say("Read."))
    await talk(program, "chat", "-q", "what is in the middle?", "--continue")
    read, found = (message["content"] for message in server.received[-1].json["messages"][-2:])
    assert read.startswith("10000\n10001\n")
    assert found == "12345\n[exit code 0]"


@pytest.mark.parametrize("settings", ["", SANDBOXED])
async def test_other_files_of_the_profile_cannot_be_read_by_tools(
    tmp_path: Path, server: ModelServer, settings: str
) -> None:
    if settings and find_sandbox_problem() is not None:
        pytest.skip("bubblewrap does not work here")
    program = scripted_program(tmp_path, server, settings)
    profile = tmp_path / "profiles" / "default"
    server.script(
        Say(calls=[Ask("read_file", {"path": f"{profile}/config.toml"})]),
        Say(calls=[Ask("terminal", {"command": f"cat {profile}/outputs/../config.toml"})]),
        Say(calls=[Ask("terminal", {"command": f"cat {profile}/*/config.toml {profile}/config.tom*"})]),
        Say("No."),
    )
    await talk(program, "chat", "-q", "what are your settings?")
    results = [message["content"] for message in server.received[-1].json["messages"] if message["role"] == "tool"]
    assert len(results) == 3
    assert "Not allowed" in results[0]
    assert not any("base_url" in result for result in results)
