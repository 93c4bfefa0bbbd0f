"""The chat on a terminal, driven by keys, with a scripted model."""

import asyncio
import contextlib
import os
import re
import sqlite3
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program import TALARIA, Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import READY, opened, ready, say

from talaria.testing.model_server import Ask, Fail, ModelServer, Say, Tokens, bad_key
from talaria.testing.model_server.media import PNG
from talaria.testing.screen import open_screen


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model."""
    facts = "[models.scripted]\ncontext_limit = 10000\ninput_price = 3.0\noutput_price = 15.0\n"
    return scripted_program(tmp_path, server, facts)


async def test_start_shows_version_model_and_folder_and_the_status_bar(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        assert re.fullmatch(r"Talaria [\d.]+ · scripted · ~/work", screen.lines[0])
        await screen.wait_for("scripted · 0 % of 10k · $0.00 · gateway off")


async def test_first_run_shows_the_configured_model_and_the_second_does_not(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        assert "• Using mine:scripted. Chosen by the setting model.provider." in screen.lines
        assert "talaria setup" in screen.text
        await screen.press("c-d")
        assert await screen.exit_code() == 0
    async with opened(program) as screen:
        await ready(screen)
        assert "talaria setup" not in screen.text


async def test_reply_is_rendered_as_markdown_and_stays_in_the_scrollback(program: Program, server: ModelServer) -> None:
    code = "\n".join(f"    line_{number} = {number}" for number in range(60))
    server.script(
        Say(f"# Ten lines\n\n**Bold** words.\n\n```python\n{code}\n```\n\nEnd.", usage=Tokens(input=900, output=100))
    )
    async with opened(program, rows=20) as screen:
        await ready(screen)
        await say(screen, "show me")
        await screen.wait_for(re.compile("^End.$", re.MULTILINE))
        await screen.wait_for("10 % of 10k")
        shown = screen.scrollback
    assert "❯ show me" in shown
    assert [line for line in shown if "line_" in line] == [f"    line_{number} = {number}" for number in range(60)]
    assert "Ten lines" in shown
    assert "Bold words." in shown
    assert not any("**" in line or "```" in line for line in shown)


async def test_tool_call_is_one_line_and_can_be_expanded(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "echo first; echo second; echo third"})]), Say("Done."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "go")
        await screen.wait_for("Done.")
        await screen.wait_for(re.compile(r"^✓ .*echo first; echo second; echo third +\d+\.\d s$", re.MULTILINE))
        assert "  second" not in screen.lines
        await screen.press("c-o")
        await screen.wait_for(re.compile("^  second$", re.MULTILINE))


async def test_path_of_a_generated_image_is_shown(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server, '[images]\ngenerate = "mine:draws"\n')
    server.script(Say(calls=[Ask("image_generate", {"prompt": "a red fox"})]), Say("Done."))
    async with opened(program, columns=200) as screen:
        await ready(screen)
        await say(screen, "a fox")
        await screen.wait_for("Done.")
        file = program.home / "work" / "a-red-fox.png"
        assert f"  {file}" in screen.lines
    assert file.read_bytes() == PNG


async def test_a_running_tool_shows_its_time_and_ctrl_c_stops_it(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "sleep 600"})]), Say("fine"))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "wait")
        await screen.wait_for(re.compile(r"^[⠋-⠿] .*sleep 600 +\d+\.\d s$", re.MULTILINE))
        await screen.press("c-c")
        await screen.wait_for("Stopped.")
        await say(screen, "and now?")
        await screen.wait_for(re.compile("^fine$", re.MULTILINE))


async def test_second_ctrl_c_exits(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.press("c-c")
        await screen.wait_for("Press Ctrl-C again to leave.")
        await screen.press("c-c")
        assert await screen.exit_code() == 0


async def test_message_typed_during_a_turn_is_queued_and_answered(program: Program, server: ModelServer) -> None:
    server.script(Say("one two three four five six", pause=0.2), Say("The second answer."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "first")
        await screen.wait_for("answering")
        await say(screen, "second")
        await screen.wait_for("queued: second")
        await screen.wait_for("The second answer.")
        lines = screen.lines
    assert lines.index("❯ first") < lines.index("one two three four five six") < lines.index("❯ second")


async def test_message_typed_during_a_turn_can_steer_it(program: Program, server: ModelServer) -> None:
    config = program.home / "profiles" / "default" / "config.toml"
    config.write_text(config.read_text() + '[cli]\nbusy = "steer"\n')
    server.script(Say(calls=[Ask("terminal", {"command": "cat go"})]), Say("En français."))
    pipe = program.home / "work" / "go"
    async with opened(program) as screen:
        await ready(screen)
        os.mkfifo(pipe)
        await say(screen, "write")
        await screen.wait_for(re.compile(r"^[⠋-⠿] .*cat go", re.MULTILINE))
        await say(screen, "in French")
        await screen.wait_for("queued: in French")
        await asyncio.to_thread(pipe.write_text, "go on\n")
        await screen.wait_for("En français.")
    assert server.received[1].json["messages"][-1]["content"] == "in French"


async def test_message_is_shown_as_queued_only_if_it_is_stored(program: Program, server: ModelServer) -> None:
    folder = program.home / "profiles" / "default"
    config = folder / "config.toml"
    config.write_text(config.read_text() + "[store]\nbusy_timeout_seconds = 0.1\n")
    server.script(Say(calls=[Ask("terminal", {"command": "cat go"})]), Say("Done."), Say("Thirdly."))
    pipe = program.home / "work" / "go"
    async with opened(program) as screen:
        await ready(screen)
        os.mkfifo(pipe)
        await say(screen, "first")
        await screen.wait_for(re.compile(r"^[⠋-⠿] .*cat go", re.MULTILINE))
        with contextlib.closing(sqlite3.connect(folder / "talaria.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await say(screen, "second")
            await screen.wait_for("was locked by another process")
            other.execute("ROLLBACK")
        await say(screen, "third")
        await screen.wait_for("queued: third")
        assert "second" not in screen.text
        await asyncio.to_thread(pipe.write_text, "go on\n")
        await screen.wait_for("Thirdly.")


async def test_a_question_offers_its_choices_and_a_free_answer(program: Program, server: ModelServer) -> None:
    question = {"question": "Which colour?", "choices": ["red", "blue"]}
    server.script(Say(calls=[Ask("clarify", question)]), Say(calls=[Ask("clarify", question)]), Say("Thanks."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "paint")
        await screen.wait_for("❯ 1. red")
        await screen.type("2")
        await screen.wait_for(re.compile("^✓ clarify.*❯ 1. red", re.MULTILINE | re.DOTALL))
        await screen.type("3")
        await screen.wait_for("answer ❯")
        await say(screen, "teal")
        await screen.wait_for("Thanks.")
    answers = [message["content"] for message in server.received[2].json["messages"] if message["role"] == "tool"]
    assert "blue" in answers[0]
    assert "teal" in answers[1]


async def test_a_mistyped_command_gets_a_hint(program: Program, server: ModelServer) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/titel x")
        await screen.wait_for("Did you mean /title?")
    assert not server.received


async def test_file_after_an_at_sign_is_completed_and_attached(program: Program, server: ModelServer) -> None:
    (program.home / "work" / "notes.txt").write_text("the tide turns at nine")
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("read @no")
        await screen.wait_for("notes.txt")
        await screen.press("tab")
        await screen.wait_for("❯ read @notes.txt")
        await screen.press("enter", "enter")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
    assert "the tide turns at nine" in server.received[0].body.decode()


async def test_an_exclamation_mark_runs_a_shell_line_without_the_model(program: Program, server: ModelServer) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "!echo from $((40 + 2)) && false")
        await screen.wait_for("from 42")
        await screen.wait_for("ended with exit code 1")
        await screen.wait_for(READY)
    assert not server.received


async def test_input_can_have_several_lines(program: Program, server: ModelServer) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("one\\")
        await screen.press("enter")
        await screen.type("two")
        await screen.press("a-enter")
        await say(screen, "three")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
    assert server.received[0].question == "one\ntwo\nthree"


async def test_long_paste_is_folded_and_sent_completely(program: Program, server: ModelServer) -> None:
    pasted = "\n".join(f"row {number}" for number in range(40))
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("sort ")
        await screen.paste(pasted)
        await screen.wait_for("❯ sort [pasted #1: 40 lines]")
        await screen.press("enter")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
    assert server.received[0].question == f"sort {pasted}"


async def test_pasted_path_of_an_image_attaches_it(program: Program, server: ModelServer) -> None:
    config = program.home / "profiles" / "default" / "config.toml"
    config.write_text(config.read_text() + "images = true\n")
    file = program.home / "work" / "a boat.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    async with opened(program) as screen:
        await ready(screen)
        await screen.paste(f"'{file}'")
        await screen.wait_for("with a boat.png")
        await say(screen, "what is it?")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
        assert "❯ what is it? [a boat.png]" in screen.lines
    assert "data:image/png;base64," in server.received[0].body.decode()


async def test_screen_is_redrawn_after_a_resize(program: Program, server: ModelServer) -> None:
    server.script(Say("words " * 60))
    async with opened(program) as screen:
        await ready(screen)
        screen.resize(60, 20)
        await say(screen, "many words")
        await screen.wait_until(lambda: len([line for line in screen.lines if line.startswith("words")]) > 5)
        await screen.wait_for(READY)
        assert all(len(line) <= 60 for line in screen.lines)
        assert len([line for line in screen.lines if line.startswith("❯ Ask")]) == 1


async def test_a_failed_turn_is_reported_and_the_chat_continues(program: Program, server: ModelServer) -> None:
    server.script(bad_key(), Say("Back again."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "hi")
        await screen.wait_for("key")
        await say(screen, "and now?")
        await screen.wait_for("Back again.")


async def test_control_characters_of_the_model_are_escaped(program: Program, server: ModelServer) -> None:
    server.script(Say("before \x1b[2J\x1b[31m\x07 after"))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "mischief")
        await screen.wait_for("after")
        assert "❯ mischief" in screen.lines


async def test_unusable_model_is_reported_without_a_traceback(program: Program, server: ModelServer) -> None:
    server.otherwise(Fail(500))
    async with opened(program, "chat", "--model", "nowhere:x") as screen:
        assert await screen.exit_code() == 1
        assert "nowhere" in screen.text
        assert "Traceback" not in screen.text


async def test_image_in_the_clipboard_is_attached(program: Program, server: ModelServer) -> None:
    config = program.home / "profiles" / "default" / "config.toml"
    config.write_text(config.read_text() + "images = true\n")
    (program.home / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    programs = program.home / "bin"
    programs.mkdir()
    (programs / "wl-paste").write_text(
        f'#!/bin/sh\n[ "$2" = image/png ] && exec cat {program.home}/picture.png\nexit 1\n'
    )
    (programs / "wl-paste").chmod(0o755)
    environment = program.environment(TERM="xterm-256color")
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    async with open_screen(
        [TALARIA], env=environment, columns=90, rows=40, spawn=warm_program.spawn, cwd=program.home / "work"
    ) as screen:
        await ready(screen)
        await screen.press("c-v")
        await screen.wait_for(re.compile(r"with pasted-\w+\.png"))
        await say(screen, "what is it?")
        await screen.wait_for(re.compile("^ok$", re.MULTILINE))
    assert "data:image/png;base64," in server.received[0].body.decode()


async def test_arguments_of_a_command_are_completed(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.type("/theme li")
        await screen.wait_for("for a light background")
        await screen.press("tab")
        await screen.wait_for("❯ /theme light")
        await screen.press("enter", "enter")
        await screen.wait_for("The theme is now light.")
