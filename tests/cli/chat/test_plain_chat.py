"""The chat as plain lines, for screen readers and dumb terminals, and a single question at a terminal."""

import os
import re
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program import TALARIA, Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import DANGEROUS, opened, ready, say

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.screen import open_screen

APPROVAL_PROMPT = re.compile(r"then Enter:$", re.MULTILINE)


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model."""
    facts = "[models.scripted]\ncontext_limit = 10000\ninput_price = 3.0\noutput_price = 15.0\n"
    return scripted_program(tmp_path, server, facts)


async def test_commands_are_completed_with_a_description(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("/ti")
        await screen.wait_for("/title [title]")
        await screen.press("tab")
        await screen.wait_for("❯ /title")
        await say(screen, " Harbour plans")
        await screen.wait_for("This conversation's title is now Harbour plans.")
        await screen.wait_for("gateway off · Harbour plans")


@pytest.mark.parametrize("options", [["--plain"], []])
async def test_plain_option_and_dumb_terminals_use_plain_lines(
    program: Program, server: ModelServer, options: list[str]
) -> None:
    server.script(Say("**Forty-two.**"), Say(calls=[Ask("terminal", {"command": DANGEROUS})]), Say("Done."))
    environment = program.environment(TERM="xterm" if options else "dumb")
    folder = program.home / "work"
    async with open_screen(
        [TALARIA, "chat", *options], env=environment, columns=80, rows=40, spawn=warm_program.spawn, cwd=folder
    ) as screen:
        await screen.wait_for(re.compile("^> $|^>$", re.MULTILINE))
        await say(screen, "/title Answers")  # or the model would be called for a title
        await screen.wait_for("title is now")
        await say(screen, "what is it?")
        await screen.wait_for("**Forty-two.**")
        await say(screen, "clean up")
        await screen.wait_for(APPROVAL_PROMPT)
        await say(screen, "y")
        await screen.wait_for("Done.")
        assert (folder / "done").exists()
        await say(screen, "/quit")
        assert await screen.exit_code() == 0
        assert "Resume this conversation with: talaria chat -r" in screen.text


async def test_ctrl_c_stops_a_plain_answer_and_the_next_line_is_answered(program: Program, server: ModelServer) -> None:
    server.script(Say("one two three four five six seven eight nine ten", pause=0.3), Say("fine"))
    async with opened(program, "chat", "--plain") as screen:
        await screen.wait_for(re.compile("^>$", re.MULTILINE))
        await say(screen, "go")
        await screen.wait_for("one")
        await screen.press("c-c")
        await screen.wait_for(re.compile("^>$", re.MULTILINE))
        await say(screen, "again")
        await screen.wait_for("fine")
        assert "ten" not in screen.text
        await screen.press("c-d")
        assert await screen.exit_code() == 0


async def test_a_single_question_at_a_terminal_asks_for_approval(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": DANGEROUS})]), Say("It is done."))
    async with opened(program, "chat", "-q", "clean up") as screen:
        await screen.wait_for(APPROVAL_PROMPT)
        await say(screen, "y")
        assert await screen.exit_code() == 0
        assert "It is done." in screen.text
    assert (program.home / "work" / "done").exists()


async def test_text_typed_before_an_approval_question_does_not_approve(program: Program, server: ModelServer) -> None:
    server.script(
        Say(calls=[Ask("terminal", {"command": "cat gate"})]),
        Say(calls=[Ask("terminal", {"command": DANGEROUS})]),
        Say("As you wish."),
        Say("Yes what?"),
        Say("The docs are fine."),
    )
    gate = program.home / "work" / "gate"
    async with opened(program, "chat", "--plain") as screen:
        await screen.wait_for(re.compile("^>$", re.MULTILINE))
        await say(screen, "/title Answers")
        await screen.wait_for("title is now")
        os.mkfifo(gate)
        await say(screen, "clean up")
        await screen.wait_for("terminal: cat gate")
        await say(screen, "y")
        await screen.type("y")
        with gate.open("w") as pipe:
            pipe.write("go on\n")
        await screen.wait_for("Your unfinished text was set aside: y")
        await screen.wait_for(APPROVAL_PROMPT)
        await say(screen, "also look at the docs")
        await screen.wait_for("That doesn't answer the question above.")
        await screen.press("enter")
        await screen.wait_for("As you wish.")
        await screen.wait_for("The docs are fine.")
    assert not (program.home / "work" / "done").exists()
    assert [server.received[index].question for index in (-2, -1)] == ["y", "also look at the docs"]


async def test_plain_approval_question_shows_the_exact_command(program: Program, server: ModelServer) -> None:
    command = "echo `x` **bold** \u202e | sh\nsecond line"
    server.script(Say(calls=[Ask("terminal", {"command": command})]), Say("As you wish."))
    async with opened(program, "chat", "-q", "clean up") as screen:
        await screen.wait_for(APPROVAL_PROMPT)
        assert r"  echo `x` **bold** \u202e | sh" in screen.lines
        assert "  second line" in screen.lines
        await screen.press("enter")
        await screen.wait_for("✗ terminal: echo `x`")
        assert await screen.exit_code() == 0
