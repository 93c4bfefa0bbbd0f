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

ASKED = re.compile(r"then Enter:$", re.MULTILINE)


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model for its own."""
    facts = "[models.scripted]\ncontext_limit = 10000\ninput_price = 3.0\noutput_price = 15.0\n"
    return scripted_program(tmp_path, server, facts)


async def test_commands_complete_and_are_explained(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("/ti")
        await screen.wait_for("/title [title]")
        await screen.press("tab")
        await screen.wait_for("❯ /title")
        await say(screen, " Harbour plans")
        await screen.wait_for("This conversation's title is now Harbour plans.")
        await screen.wait_for("gateway off · Harbour plans")


@pytest.mark.parametrize("words", [["--plain"], []])
async def test_plain_lines_for_screen_readers_and_dumb_terminals(
    program: Program, server: ModelServer, words: list[str]
) -> None:
    server.script(Say("**Forty-two.**"), Say(calls=[Ask("terminal", {"command": DANGEROUS})]), Say("Done."))
    environment = program.environment(TERM="xterm" if words else "dumb")
    place = program.home / "work"
    async with open_screen(
        [TALARIA, "chat", *words], env=environment, columns=80, rows=40, spawn=warm_program.spawn, cwd=place
    ) as screen:
        await screen.wait_for(re.compile("^> $|^>$", re.MULTILINE))
        await say(screen, "/title Answers")  # or the model would be asked for one
        await screen.wait_for("title is now")
        await say(screen, "what is it?")
        await screen.wait_for("**Forty-two.**")
        await say(screen, "clean up")
        await screen.wait_for(ASKED)
        await say(screen, "y")
        await screen.wait_for("Done.")
        assert (place / "done").exists()
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
        await screen.wait_for(ASKED)
        await say(screen, "y")
        assert await screen.exit_code() == 0
        assert "It is done." in screen.text
    assert (program.home / "work" / "done").exists()


async def test_what_was_typed_before_a_plain_question_approves_nothing(program: Program, server: ModelServer) -> None:
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
        await screen.wait_for(ASKED)
        await say(screen, "also look at the docs")
        await screen.wait_for("That doesn't answer the question above.")
        await screen.press("enter")
        await screen.wait_for("As you wish.")
        await screen.wait_for("The docs are fine.")
    assert not (program.home / "work" / "done").exists()
    assert [server.received[place].question for place in (-2, -1)] == ["y", "also look at the docs"]


async def test_a_plain_question_shows_the_command_as_it_is(program: Program, server: ModelServer) -> None:
    command = "echo `x` **bold** \u202e | sh\nsecond line"
    server.script(Say(calls=[Ask("terminal", {"command": command})]), Say("As you wish."))
    async with opened(program, "chat", "-q", "clean up") as screen:
        await screen.wait_for(ASKED)
        assert r"  echo `x` **bold** \u202e | sh" in screen.lines
        assert "  second line" in screen.lines
        await screen.press("enter")
        await screen.wait_for("✗ terminal: echo `x`")
        assert await screen.exit_code() == 0
