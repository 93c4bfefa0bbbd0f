"""Keys of the live chat: search, interrupting, leaving, pasting, the shell, the editor, notifications."""

import os
import re
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import READY, opened, ready, say

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.screen import Screen
from talaria.testing.terminal import BELL
from talaria.testing.wait import until

BUSY = re.compile(r"^[⠋-⠿] .*cat gate", re.MULTILINE)
LEAVE = "Press Ctrl-C again to leave."


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model."""
    return scripted_program(tmp_path, server, "[models.scripted]\ncontext_limit = 10000\n")


def configure(program: Program, settings: str) -> None:
    config = program.home / "profiles" / "default" / "config.toml"
    config.write_text(config.read_text() + settings)


def make_gate(program: Program) -> Path:
    gate = program.home / "work" / "gate"
    os.mkfifo(gate)
    return gate


async def wait_at_gate(screen: Screen, program: Program, server: ModelServer) -> Path:
    """Start a turn whose command waits until the test writes to the returned pipe."""
    server.script(Say(calls=[Ask("terminal", {"command": "cat gate"})]), Say("Past the gate."))
    gate = make_gate(program)
    await say(screen, "wait")
    await screen.wait_for(BUSY)
    return gate


async def test_shell_output_is_shown_below_its_command(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "!printf 'first\\nsecond'")
        await screen.wait_for("second")
        await screen.wait_for(READY)
        lines = screen.lines
    row = lines.index("❯ !printf 'first\\nsecond'")
    assert lines[row + 1 : row + 3] == ["first", "second"]
    assert next(line for line in lines[row + 3 :] if line).startswith("❯ Ask anything")


@pytest.mark.parametrize("key", ["enter", "tab", "right", "c-e"])
async def test_history_match_is_accepted(program: Program, server: ModelServer, key: str) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "a slow question")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
        await screen.wait_for(READY)
        await screen.press("c-r")
        await screen.wait_for("I-search backward")
        assert "❯ Ask" not in screen.text
        await screen.type("slow")
        await screen.wait_for(re.compile(r"^❯ a slow question\nI-search backward: slow$", re.MULTILINE))
        await screen.press(key)
        await screen.wait_until(lambda: "I-search" not in screen.text)
        await say(screen, " again")
        await server.arrived(2)
    assert server.received[-1].question == "a slow question again"


async def test_ctrl_c_clears_the_draft_and_saves_it_in_the_history(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("hello")
        await screen.press("c-c")
        await screen.type("second draft")
        await screen.press("c-c")
        await say(screen, "!echo still $((40 + 2))")
        await screen.wait_for("still 42")
        await screen.wait_for(READY)
        await screen.press("up", "up")
        await screen.wait_for("❯ second draft")


async def test_any_key_cancels_the_offer_to_exit(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.press("c-c")
        await screen.wait_for(LEAVE)
        await screen.press("x", "backspace")
        await screen.wait_until(lambda: LEAVE not in screen.text)
        await screen.press("c-c")
        await screen.wait_for(LEAVE)
        await screen.press("c-c")
        assert await screen.exit_code() == 0


@pytest.mark.parametrize("key", ["c-c", "esc"])
async def test_ctrl_c_or_escape_stops_the_turn_without_exiting(program: Program, server: ModelServer, key: str) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await wait_at_gate(screen, program, server)
        await screen.type("a draft")
        await screen.press(key)
        await screen.wait_for("Stopped.")
        await screen.wait_for("❯ a draft")
        await screen.press("c-c")
        await screen.wait_for(READY)
        await screen.press("c-c")
        await screen.wait_for(LEAVE)


async def test_exit_shows_how_to_resume_the_session(program: Program, server: ModelServer) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "hello")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
        await screen.wait_for(READY)
        await screen.press("c-d")
        assert await screen.exit_code() == 0
        hint = re.search(r"Resume this conversation with: talaria chat -r (\w+)", screen.text)
    assert hint
    async with opened(program, "chat", "-r", hint[1]) as screen:
        await screen.wait_for("❯ hello")


async def test_exit_from_an_empty_session_shows_no_resume_hint(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.press("c-d")
        assert await screen.exit_code() == 0
        assert "Resume" not in screen.text


async def test_long_paste_stays_folded_when_sent_and_undone(program: Program, server: ModelServer) -> None:
    pasted = "".join(f"row {number}\n" for number in range(120))
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("sort ")
        await screen.paste(pasted)
        await screen.press("enter")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
        await screen.wait_for(READY)
        assert "❯ sort [pasted #1: 120 lines]" in screen.lines
        await until(lambda: server.received_apart)
        await say(screen, "/undo")
        await screen.wait_for(re.compile(r"^❯ \[pasted #2: 120 lines\]", re.MULTILINE))
        assert "row 5" not in [line.strip() for line in screen.lines]
        await screen.press("enter")
        await server.arrived(2)
    assert server.received[-1].question == f"sort {pasted}".strip()


async def test_external_editor_changes_the_draft(program: Program, server: ModelServer) -> None:
    editor = program.home / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s, edited" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    program_with_editor = program.environment(TERM="xterm-256color", VISUAL=str(editor))
    async with opened(program, environment=program_with_editor) as screen:
        await ready(screen)
        await screen.type("draft")
        await screen.press("c-x", "c-e")
        await screen.wait_for("❯ draft, edited")
        await screen.press("enter")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
    assert server.received[0].question == "draft, edited"


@pytest.mark.parametrize("command", ["?", "/keys"])
async def test_keyboard_shortcuts_are_listed(program: Program, server: ModelServer, command: str) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, command)
        await screen.wait_for("Ctrl-R")
        await say(screen, "/help")
        await screen.wait_until(lambda: any("shows the keyboard shortcuts" in line for line in screen.scrollback))
    assert not server.received


async def test_bell_rings_at_the_end_of_a_turn(program: Program, server: ModelServer) -> None:
    configure(program, "[cli]\nnotify_seconds = 0\n")
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "hello")
        await screen.wait_until(lambda: BELL in screen.alerts, expected="a bell")


async def test_question_sends_a_desktop_notification(program: Program, server: ModelServer) -> None:
    configure(program, '[cli]\nnotify = "desktop"\nnotify_seconds = 0\n')
    server.script(Say(calls=[Ask("clarify", {"question": "Which colour?", "choices": ["red"]})]), Say("Thanks."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "paint")
        await screen.wait_until(lambda: "Talaria has a question" in screen.alerts, expected="a notification")
        assert BELL not in screen.alerts


async def test_bell_does_not_ring_soon_after_typing(program: Program, server: ModelServer) -> None:
    configure(program, "[cli]\nnotify_seconds = 3600\n")
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "hello")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
        await screen.wait_for(READY)
        assert not screen.alerts


async def test_question_waits_until_the_draft_is_sent(program: Program, server: ModelServer) -> None:
    question = {"question": "Which `colour`?", "choices": ["red", "blue"]}
    server.script(
        Say(calls=[Ask("terminal", {"command": "cat gate"})]),
        Say(calls=[Ask("clarify", question)]),
        Say("Thanks."),
    )
    async with opened(program) as screen:
        await ready(screen)
        gate = make_gate(program)
        await say(screen, "paint")
        await screen.wait_for(BUSY)
        await screen.type("1 more")
        with gate.open("w") as pipe:
            pipe.write("go on\n")
        await screen.wait_for("A question is waiting")
        await screen.press("enter")
        await screen.wait_for("Which colour?")
        await screen.wait_for("❯ 1. red")
        await screen.type("2")
        await screen.wait_for("Thanks.")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
    assert server.received[-1].question == "1 more"


async def test_typing_at_a_question_with_choices_starts_a_free_answer(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("clarify", {"question": "Which colour?", "choices": ["red"]})]), Say("Thanks."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "paint")
        await screen.wait_for("❯ 1. red")
        await screen.type("g")
        await screen.wait_for(re.compile(r"\? g$|❯ g$", re.MULTILINE))
        await screen.type("reen")
        await screen.press("enter")
        await screen.wait_for("Thanks.")
    assert "green" in str(server.received[-1].json["messages"][-1]["content"])


async def test_paste_that_steers_a_turn_is_shown_folded_once(program: Program, server: ModelServer) -> None:
    configure(program, '[cli]\nbusy = "steer"\n')
    pasted = "\n".join(f"row {number}" for number in range(20))
    async with opened(program) as screen:
        await ready(screen)
        gate = await wait_at_gate(screen, program, server)
        await screen.paste(pasted)
        await screen.press("enter")
        await screen.wait_for("queued: [pasted #1: 20 lines]")
        with gate.open("w") as pipe:
            pipe.write("go on\n")
        await screen.wait_for("Past the gate.")
        await screen.wait_for(READY)
        assert screen.lines.count("❯ [pasted #1: 20 lines]") == 1
        assert "waits:" not in screen.text
    assert server.received[1].json["messages"][-1]["content"] == pasted
