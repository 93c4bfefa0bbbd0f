"""The command `talaria hooks`."""

import json
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.hooks.hook_folders import write_hook

NAMED = "name: teller\ndescription: Tells me\nevents:\n  - agent:end\n  - command:*\n"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles" / "default"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def program(tmp_path: Path, profile: Path) -> Program:
    return Program(tmp_path)


def test_hooks_are_listed_with_their_state_and_problems(program: Program, profile: Path) -> None:
    write_hook(profile / "hooks", "teller", NAMED)
    write_hook(profile / "hooks", "quiet", "events: session:end\nenabled: false\nrun: 'true'\n", handler="")
    broken = write_hook(profile / "hooks", "broken", handler="def handle(:\n")
    listed = program.run("hooks", "list")
    assert listed.code == 0
    assert [line.split("\t") for line in listed.out.splitlines()][-3:] == [
        ["broken", "broken", "", "", ""],
        ["quiet", "off", "session:end", "true", ""],
        ["teller", "on", "agent:end command:*", "handler.py", "Tells me"],
    ]
    assert f"{broken / 'handler.py'}, line 1:" in listed.err


def test_hooks_are_listed_as_json(program: Program, profile: Path) -> None:
    folder = write_hook(profile / "hooks", "teller", NAMED)
    (profile / "BOOT.md").write_text("Say hello.")
    boot, teller = json.loads(program.run("hooks", "list", "--json").out)
    assert (boot["name"], boot["state"]) == ("boot", "on")
    assert teller == {
        "name": "teller",
        "state": "on",
        "folder": str(folder),
        "description": "Tells me",
        "events": ["agent:end", "command:*"],
        "run": "",
        "timeout_seconds": 30.0,
    }


def test_without_hooks_the_built_in_one_is_listed(program: Program) -> None:
    listed = program.run("hooks", "list")
    assert (listed.code, len(listed.out.splitlines())) == (0, 1)
    assert "if there is one" in listed.out


def test_hook_is_tested_with_a_realistic_event(program: Program, profile: Path) -> None:
    folder = write_hook(profile / "hooks", "teller", NAMED)
    tried = program.run("hooks", "test", "teller")
    assert (tried.code, "The hook teller handled agent:end in" in tried.err) == (0, True)
    assert program.run("hooks", "test", "teller", "command:status").code == 0
    (end, facts), (command, more) = [json.loads(line) for line in (folder / "notes").read_text().splitlines()]
    assert (end, facts["outcome"], facts["platform"]) == ("agent:end", "answered", "telegram")
    assert (command, more["command"]) == ("command:status", "status")


def test_command_hook_is_tested_and_its_output_shown(program: Program, profile: Path) -> None:
    run = "events: gateway:start\nrun: echo $TALARIA_HOOK_EVENT\n"
    write_hook(profile / "hooks", "one", run, handler="")
    assert program.run("hooks", "test", "one").out == "gateway:start\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["teller", "agent:start"], "doesn't listen for agent:start"),
        (["teller", "agent:stop"], "There is no event `agent:stop`"),
        (["tell"], "There is no hook `tell`"),
        (["boot"], "`boot` is built in"),
        (["fails"], "ValueError: no (handler.py, line 2)"),
        (["broken"], "line 1:"),
    ],
)
def test_failed_hook_test_is_reported_with_the_reason(
    program: Program, profile: Path, arguments: list[str], message: str
) -> None:
    write_hook(profile / "hooks", "teller", NAMED)
    write_hook(profile / "hooks", "fails", handler="def handle(event, facts):\n    raise ValueError('no')\n")
    write_hook(profile / "hooks", "broken", "nonsense")
    tried = program.run("hooks", "test", *arguments)
    assert (tried.code, message in tried.err) == (1, True)
    assert "Traceback" not in tried.err
