"""Trust question for a project folder: only a typed answer counts, for the files shown."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import READY, opened, ready, say

from talaria.testing.model_server import ModelServer
from talaria.testing.screen import Screen
from talaria.testing.wait import LIMIT

OPEN = "Type the letter and press Enter"
QUESTION = "Trust the commands and skills in this folder?"
COMMAND = "---\nhelp: Deploy it.\nrun: echo DEPLOYED\n---\n"


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria in a folder with a project command."""
    program = scripted_program(tmp_path, server)
    add_command(program, "deploy.md")
    return program


def add_command(program: Program, name: str) -> None:
    folder = program.home / "work" / ".talaria" / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(COMMAND)


def list_trusted(program: Program) -> list[str]:
    return [one["folder"] for one in json.loads(program.run("trust", "list", "--json").out)]


async def leave(screen: Screen) -> None:
    await screen.press("c-d")
    async with asyncio.timeout(LIMIT):
        await screen.process.wait()


async def test_typed_yes_enables_project_commands(program: Program, server: ModelServer) -> None:
    async with opened(program, columns=80, rows=24) as screen:
        await screen.wait_for(OPEN)
        assert "• .talaria/commands/deploy.md" in screen.lines
        await say(screen, "/deploy")
        await screen.wait_for(re.compile("There is no command"))
        await screen.wait_for(OPEN)
        await say(screen, "y")
        await screen.wait_for(re.compile("^Trusted", re.MULTILINE))
        await say(screen, "/deploy")
        await screen.wait_for(re.compile("^DEPLOYED", re.MULTILINE))
        await leave(screen)
    assert list_trusted(program) == [str((program.home / "work").resolve())]
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/deploy")
        await screen.wait_for(re.compile("^DEPLOYED", re.MULTILINE))
        assert QUESTION not in screen.text


@pytest.mark.parametrize("answer", ["n", "esc"])
async def test_refusal_disables_project_commands_until_the_next_start(
    program: Program, server: ModelServer, answer: str
) -> None:
    async with opened(program, columns=80, rows=24) as screen:
        await screen.wait_for(OPEN)
        await (screen.press("esc") if answer == "esc" else say(screen, answer))
        await screen.wait_for(re.compile("They are ignored"))
        await screen.wait_for(READY)
        await say(screen, "/deploy")
        await screen.wait_for(re.compile("There is no command"))
        await leave(screen)
    async with opened(program) as screen:
        await screen.wait_for(OPEN)
    assert list_trusted(program) == []


async def test_enter_digits_and_messages_do_not_trust_the_folder(program: Program, server: ModelServer) -> None:
    async with opened(program, columns=80, rows=24) as screen:
        await screen.wait_for(OPEN)
        await screen.press("enter", "down", "enter")
        await say(screen, "2 plus 2")
        await server.arrived(1)
        assert server.received[0].question == "2 plus 2"
        await screen.wait_for(re.compile("^ok", re.MULTILINE))
        await screen.wait_for(OPEN)
        assert list_trusted(program) == []
        await say(screen, "n")
        await screen.wait_for(re.compile("They are ignored"))


async def test_files_changed_during_the_question_need_another_answer(program: Program) -> None:
    async with opened(program, columns=80, rows=24) as screen:
        await screen.wait_for(OPEN)
        add_command(program, "later.md")
        await say(screen, "y")
        await screen.wait_for(re.compile("later.md"))
        await screen.wait_for(OPEN)
        assert not re.search("^Trusted", screen.text, re.MULTILINE)
        await say(screen, "y")
        await screen.wait_for(re.compile("^Trusted", re.MULTILINE))


async def test_question_stays_visible_with_many_files_and_odd_names(program: Program) -> None:
    add_command(program, "a\x1b[31m`**b**\nTrusted.md")
    for number in range(30):
        add_command(program, f"c{number:02}.md")
    async with opened(program, columns=80, rows=24) as screen:
        await screen.wait_for(OPEN)
        assert any(one.startswith("• .talaria/commands/a") and "`**b** Trusted.md" in one for one in screen.lines)
        assert "• and 20 more" in screen.lines
        assert f"? {QUESTION}" in screen.lines


async def test_circular_links_do_not_prevent_the_chat_from_starting(program: Program, server: ModelServer) -> None:
    for name in ("one", "two"):
        (program.home / "work" / ".talaria" / "commands" / name).symlink_to(".")
    async with opened(program, columns=80, rows=24) as screen:
        await screen.wait_for(re.compile(r"commands\s+and\s+skills\s+are\s+ignored"))
        await ready(screen)
        await say(screen, "hello")
        await screen.wait_for(re.compile("^ok", re.MULTILINE))


async def test_plain_chat_asks_the_trust_question_in_lines(program: Program, server: ModelServer) -> None:
    async with opened(program, "chat", "--plain", columns=80, rows=24) as screen:
        await screen.wait_for(re.compile(re.escape("y (yes) or n (no), then Enter:")))
        await say(screen, "hello")
        await screen.wait_for(re.compile("That doesn't answer"))
        await say(screen, "y")
        await screen.wait_for(re.compile("^ok", re.MULTILINE))
        assert server.received[0].question == "hello"
        await say(screen, "/deploy")
        await screen.wait_for(re.compile("^DEPLOYED", re.MULTILINE))
