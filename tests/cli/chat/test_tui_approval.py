"""Approvals in the live chat: only a deliberate answer to a visible question counts."""

import os
import re
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import DANGEROUS, READY, opened, ready, say

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.screen import Screen

OPEN = "Type the letter and press Enter"
QUESTION = "Run this command?"
DRAFT = "Send or clear your draft"


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model."""
    return scripted_program(tmp_path, server, "[models.scripted]\ncontext_limit = 10000\n")


@pytest.fixture
def done(program: Program) -> Path:
    """The file that the dangerous command creates."""
    return program.home / "work" / "done"


def exists(file: Path) -> bool:
    return file.exists()


async def ask_for_approval(screen: Screen) -> None:
    """Send a message and wait until its approval question can be answered."""
    await ready(screen)
    await say(screen, "clean up")
    await screen.wait_for(OPEN)


async def test_approval_shows_the_command_and_accepts_y_and_enter(
    program: Program, server: ModelServer, done: Path
) -> None:
    server.script(Say("Cleaning up.", calls=[Ask("terminal", {"command": DANGEROUS})]), Say("It is done."))
    async with opened(program) as screen:
        await ask_for_approval(screen)
        assert screen.lines.index("Cleaning up.") < screen.lines.index(QUESTION)
        assert f"  {DANGEROUS}" in screen.lines
        await screen.press("enter")
        await screen.press("enter")
        await say(screen, "y")
        await screen.wait_for("✓ approved once")
        await screen.wait_for("It is done.")
        await screen.wait_for(READY)
    assert exists(done)


async def test_a_plan_is_rejected_with_a_reason_then_approved(program: Program, server: ModelServer) -> None:
    write = Say(calls=[Ask("write_file", {"path": "result", "content": "done"})])
    server.script(write, write, Say("With tests, then."), write, Say("It is written."))
    result = program.home / "work" / "result"
    async with opened(program, "chat", "--plan") as screen:
        await ask_for_approval(screen)  # the first call only gets the instructions of plan mode
        await screen.wait_for("Carry out the plan?")
        await screen.wait_for("y yes · n no, keep planning · n and what to change")
        await say(screen, "n, first add tests")
        await screen.wait_for("With tests, then.")
        await screen.wait_for(READY)
        assert not exists(result)
        await say(screen, "yes, with tests")
        await screen.wait_for("carry out? ❯")
        await say(screen, "y")
        await screen.wait_for("✓ plan approved")
        await screen.wait_for("It is written.")
    assert result.read_text() == "done"
    refusals = [message["content"] for message in server.received[-1].json["messages"] if message["role"] == "tool"]
    assert "first add tests" in refusals[1]


@pytest.mark.parametrize(("answer", "record"), [("s", "✓ approved for this conversation"), ("a", "✓ approved always")])
async def test_wider_approval_applies_to_the_next_call(
    program: Program, server: ModelServer, answer: str, record: str
) -> None:
    call = Say(calls=[Ask("terminal", {"command": DANGEROUS})])
    server.script(call, Say("Once."), call, Say("Twice."))
    async with opened(program) as screen:
        await ask_for_approval(screen)
        await say(screen, answer)
        await screen.wait_for(record)
        await screen.wait_for("Once.")
        await say(screen, "again")
        await screen.wait_for("Twice.")


async def test_enter_alone_never_approves(program: Program, server: ModelServer, done: Path) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": DANGEROUS})]), Say("As you wish."))
    async with opened(program) as screen:
        await ask_for_approval(screen)
        await screen.press("enter", "enter", "down", "enter")
        await screen.wait_for(OPEN)
        await screen.press("esc")
        await screen.wait_for(re.compile(r"^✗ terminal: echo true.*, refused$", re.MULTILINE))
        await screen.wait_for("As you wish.")
    assert not exists(done)


async def test_reason_of_a_refusal_is_sent_to_the_model(program: Program, server: ModelServer, done: Path) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": DANGEROUS})]), Say("As you wish."))
    async with opened(program) as screen:
        await ask_for_approval(screen)
        await say(screen, "no, use the trash")
        await screen.wait_for("As you wish.")
    assert "use the trash" in server.received[1].body.decode()
    assert not exists(done)


async def test_draft_is_sent_as_a_message_and_does_not_approve(
    program: Program, server: ModelServer, done: Path
) -> None:
    gate = program.home / "work" / "gate"
    server.script(
        Say(calls=[Ask("terminal", {"command": "cat gate"})]),
        Say(calls=[Ask("terminal", {"command": DANGEROUS})]),
        Say("As you wish."),
        Say("The docs are fine."),
    )
    async with opened(program) as screen:
        await ready(screen)
        os.mkfifo(gate)
        await say(screen, "clean up")
        await screen.wait_for(re.compile(r"^[⠋-⠿] .*cat gate", re.MULTILINE))
        await screen.type("also look at")
        with gate.open("w") as pipe:
            pipe.write("go on\n")
        await screen.wait_for(DRAFT)
        await screen.type(" the docs")
        await screen.press("enter")
        await screen.wait_for("queued: also look at the docs")
        await screen.wait_for(OPEN)
        assert not exists(done)
        await say(screen, "n")
        await screen.wait_for("The docs are fine.")
    assert not exists(done)
    assert server.received[-1].question == "also look at the docs"


async def test_text_that_starts_like_a_choice_is_a_message(program: Program, server: ModelServer, done: Path) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": DANGEROUS})]), Say("As you wish."), Say("Good to hear."))
    async with opened(program) as screen:
        await ask_for_approval(screen)
        await say(screen, " 1 is good")
        await screen.wait_for("queued: 1 is good")
        await screen.wait_for(OPEN)
        await screen.press("esc")
        await screen.wait_for("Good to hear.")
    assert not exists(done)


async def test_a_letter_typed_before_the_question_is_part_of_the_draft(
    program: Program, server: ModelServer, done: Path
) -> None:
    gate = program.home / "work" / "gate"
    server.script(
        Say(calls=[Ask("terminal", {"command": "cat gate"})]),
        Say(calls=[Ask("terminal", {"command": DANGEROUS})]),
        Say("As you wish."),
    )
    async with opened(program) as screen:
        await ready(screen)
        os.mkfifo(gate)
        await say(screen, "clean up")
        await screen.wait_for(re.compile(r"^[⠋-⠿] .*cat gate", re.MULTILINE))
        await screen.type("y")
        with gate.open("w") as pipe:
            pipe.write("go on\n")
        await screen.wait_for(DRAFT)
        await screen.press("esc")
        await screen.wait_for(OPEN)
        await say(screen, "n")
        await screen.wait_for("As you wish.")
        await screen.wait_for(re.compile("^❯ y$", re.MULTILINE))
    assert not exists(done)


async def test_approval_question_shows_the_exact_command(program: Program, server: ModelServer) -> None:
    command = "echo `x` **bold** [safe](http://x) \u202e\x1b[2J | sh\n    second line"
    server.script(Say(calls=[Ask("terminal", {"command": command})]), Say("As you wish."))
    async with opened(program) as screen:
        await ask_for_approval(screen)
        assert r"  echo `x` **bold** [safe](http://x) \u202e\x1b[2J | sh" in screen.lines
        assert "      second line" in screen.lines
        await screen.press("esc")
        await screen.wait_for("As you wish.")


async def test_file_change_is_shown_as_a_diff_before_approval(program: Program, server: ModelServer) -> None:
    hook = program.home / "work" / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(parents=True)
    hook.write_text("one\ntwo\nthree\n")
    server.script(Say(calls=[Ask("write_file", {"path": str(hook), "content": "one\nzwei\nthree\n"})]), Say("Changed."))
    async with opened(program) as screen:
        await ask_for_approval(screen)
        assert "  -two" in screen.lines
        assert "  +zwei" in screen.lines
        row = screen.lines.index("  +zwei")
        assert screen.styled[row][2].colour != screen.styled[row - 1][2].colour
        await say(screen, "y")
        await screen.wait_for("Changed.")
        assert screen.lines.count("  +zwei") == 1
    assert hook.read_text() == "one\nzwei\nthree\n"
