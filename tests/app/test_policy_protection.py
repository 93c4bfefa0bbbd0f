"""Sessions that try to change their own policy: with a command, and with a program that is not examined."""

from pathlib import Path

import pytest
from tests.app.program import TALARIA
from tests.app.program_with_model import scripted_program, talk

from talaria.testing.model_server import Ask, ModelServer, Say

CHANGE = [TALARIA, "config", "set", "approval.allowed", "everything"]


@pytest.mark.parametrize("mode", ["ask", "off"])
async def test_a_command_that_changes_the_policy_is_refused(tmp_path: Path, server: ModelServer, mode: str) -> None:
    program = scripted_program(tmp_path, server, f'[approval]\nmode = "{mode}"\n')
    settings = (tmp_path / "profiles" / "default" / "config.toml").read_text()
    server.script(Say(calls=[Ask("terminal", {"command": " ".join(CHANGE)})]), Say("Done."))
    await talk(program, "chat", "-q", "allow yourself everything")
    answer = server.received[-1].json["messages"][-1]["content"]
    assert "changes the agent's own permissions, which only a person may do, in a terminal" in answer
    assert (tmp_path / "profiles" / "default" / "config.toml").read_text() == settings


@pytest.mark.parametrize(
    "hidden",
    [
        f"subprocess.run({CHANGE})",
        f"env = dict(os.environ); env.pop('TALARIA_SESSION_ID'); subprocess.run({CHANGE}, env=env)",
        f"env = {{'HOME': '', 'TALARIA_HOME': os.environ['TALARIA_HOME']}}; subprocess.run({CHANGE}, env=env)",
    ],
)  # fmt: skip
async def test_policy_change_from_an_unexamined_program_is_refused_by_the_process(
    tmp_path: Path, server: ModelServer, hidden: str
) -> None:
    program = scripted_program(tmp_path, server)
    settings = (tmp_path / "profiles" / "default" / "config.toml").read_text()
    (tmp_path / "work" / "build.py").write_text(f"import os, subprocess\n{hidden}\n")
    server.script(Say(calls=[Ask("terminal", {"command": "python3 build.py"})]), Say("Done."))
    await talk(program, "chat", "-q", "build it")
    answer = server.received[-1].json["messages"][-1]["content"]
    assert "can't be run from inside one of its conversations" in answer
    assert (tmp_path / "profiles" / "default" / "config.toml").read_text() == settings
