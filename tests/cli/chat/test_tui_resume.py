"""Resumed session in the live chat: last exchanges, interrupted turns, status line."""

import os
import re
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import READY, opened, ready, say, say_until, typed_line

from talaria.testing.model_server import Ask, ModelServer, Say, Tokens


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model, whose price is unknown."""
    return scripted_program(tmp_path, server, "[models.scripted]\ncontext_limit = 10000\n")


@pytest.mark.parametrize("arguments", [["chat", "-c"], ["chat", "-c", "--plain"]])
async def test_resumed_session_shows_the_last_exchanges(
    program: Program, server: ModelServer, arguments: list[str]
) -> None:
    answers = [Say(f"Answer {number}.") for number in range(5)]
    server.script(answers[0], *answers[1:])
    async with opened(program) as screen:
        await ready(screen)
        for number in range(5):
            await say(screen, f"question {number}")
            await screen.wait_for(f"Answer {number}.")
        await screen.wait_for(READY)
        await screen.press("c-d")
        assert await screen.exit_code() == 0
    async with opened(program, *arguments) as screen:
        await screen.wait_for("Answer 4.")
        shown = screen.text
        assert [f"question {number}" in shown for number in range(5)] == [False, False, True, True, True]
        assert shown.index("question 3") < shown.index("Answer 3.") < shown.index("question 4")


async def test_resumed_session_after_a_crash_shows_the_interrupted_question(
    program: Program, server: ModelServer
) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "cat gate"})]), Say("The command was cut off."))
    async with opened(program) as screen:
        await ready(screen)
        os.mkfifo(program.home / "work" / "gate")
        await say(screen, "open the gate")
        await screen.wait_for(re.compile(r"^[⠋-⠿] .*cat gate", re.MULTILINE))
        screen.kill()
        await screen.exit_code()
    async with opened(program, "chat", "-c") as screen:
        await screen.wait_for("The command was cut off.")
        lines = screen.lines
    assert lines.index("❯ open the gate") < lines.index("The command was cut off.")
    assert lines.count("❯ open the gate") == 1


async def test_status_line_shows_context_use_and_unknown_cost(program: Program, server: ModelServer) -> None:
    server.script(Say("One.", usage=Tokens(input=2_000, output=10)), Say("Two.", usage=Tokens(input=3_000, output=10)))
    async with opened(program) as screen:
        await ready(screen)
        await screen.wait_for("0 % of 10k · cost unknown · gateway off")
        await say(screen, "first")
        await screen.wait_for("20 % of 10k · cost unknown")
        await say(screen, "second")
        await screen.wait_for("30 % of 10k")
        await say_until(screen, "/undo", lambda: typed_line(screen) == "❯ second")
        await screen.wait_until(lambda: "30 % of 10k" not in screen.text)
        await screen.press("c-c")
        await say(screen, "/status")
        found = await screen.wait_for(re.compile(r"tokens used \((\d+)%\)"))
        await screen.wait_for(f"scripted · {found[1]} % of 10k")


async def test_command_descriptions_fit_in_80_columns(program: Program) -> None:
    async with opened(program, columns=80, rows=24) as screen:
        await ready(screen)
        await screen.type("/")
        await screen.wait_for(re.compile(r"^ /title \[title\] +Set or show this conversation's title\.", re.MULTILINE))


async def test_a_narrow_terminal_wraps_at_words(program: Program, server: ModelServer) -> None:
    rows = "".join(f"| port {number} | 9:00 | text that does not fit into it |\n" for number in range(8))
    server.script(Say(f"| Harbour | Tide | Long remark |\n|---|---|---|\n{rows}\nThe end of it.", pause=0.01))
    async with opened(program, columns=20, rows=15) as screen:
        await screen.wait_for("scripted · 0 %")
        await say(screen, "a table of harbours, please")
        await screen.wait_for("The end of it.")
        shown = screen.scrollback
    assert "❯ a table of" in shown
    assert "  harbours, please" in shown
    assert len([line for line in shown if line.startswith("Harbour: port")]) == 8
    assert not any(line.startswith("⠋") for line in shown)
    text = " ".join(" ".join(shown).split())
    assert text.count("text that does not fit into it") == 8


async def test_texts_before_and_after_a_refused_call_are_separate(program: Program, server: ModelServer) -> None:
    server.script(Say("Running that.", calls=[Ask("terminal", {"command": "rm -rf ~"})]), Say("I could not."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "clean up")
        await screen.wait_for("I could not.")
        lines = screen.lines
    assert lines.index("Running that.") < lines.index("✗ terminal: rm -rf ~, refused") < lines.index("I could not.")


async def test_texts_before_and_after_an_unknown_call_are_separate(program: Program, server: ModelServer) -> None:
    server.script(Say("Running that.", calls=[Ask("no_such_tool", {})]), Say("I could not."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "clean up")
        await screen.wait_for("I could not.")
        assert "Running that." in screen.lines


async def test_an_edit_shows_its_diff(program: Program, server: ModelServer) -> None:
    (program.home / "work" / "a.txt").write_text("one\ntwo\n")
    content = "".join(f"new {number}\n" for number in range(60))
    server.script(
        Say(calls=[Ask("edit_file", {"path": "a.txt", "old_text": "two", "new_text": "zwei"})]),
        Say("Edited."),
        Say(calls=[Ask("write_file", {"path": "a.txt", "content": content})]),
        Say("Written."),
    )
    async with opened(program, rows=60) as screen:
        await ready(screen)
        await say(screen, "edit it")
        await screen.wait_for("Edited.")
        assert [line for line in screen.lines if line.startswith(("  +", "  -"))] == ["  -two", "  +zwei"]
        await screen.wait_for(re.compile(r"^✓ edit_file: a\.txt  \+1 -1  \d+\.\d s$", re.MULTILINE))
        await say(screen, "write it")
        await screen.wait_for("Written.")
        await screen.wait_for(re.compile(r"^  … \d+ more lines, Ctrl-O shows them$", re.MULTILINE))
        assert "  +new 59" not in screen.lines
        await screen.press("c-o")
        await screen.wait_for("  +new 59")
