"""State of the terminal chat across runs: goals, history, sessions and queued messages."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.app.named_pipes import open_gate
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import READY, opened, ready, say, say_until, typed_line

from talaria.testing.model_server import Ask, ModelServer, Say


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model."""
    facts = "[models.scripted]\ncontext_limit = 10000\ninput_price = 3.0\noutput_price = 15.0\n"
    return scripted_program(tmp_path, server, facts)


async def test_history_is_saved_across_runs_and_searchable(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/title about herons")
        await screen.wait_for("title is now about herons")
        await screen.press("c-d")
        await screen.exit_code()
    async with opened(program) as screen:
        await ready(screen)
        await screen.press("up")
        await screen.wait_for("❯ /title about herons")
        await screen.press("c-c", "c-r")
        await screen.type("heron")
        await screen.wait_for(re.compile("I-search.*heron"))
        await screen.wait_for("❯ /title about herons")


async def test_killed_chat_loses_no_messages(program: Program, server: ModelServer) -> None:
    server.script(Say("slow " * 200, pause=0.05), Say("All there."), Say("And this too."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "tell me everything")
        await screen.wait_for("slow slow")
        await say(screen, "and then this")
        await screen.wait_for("queued: and then this")
        screen.kill()
        await screen.exit_code()
    async with opened(program, "--continue") as screen:
        await screen.wait_for("All there.")
        await screen.wait_for("And this too.")
    last = max((call.json["messages"] for call in server.received), key=len)
    questions = [message["content"] for message in last if message["role"] == "user"]
    assert questions == ["tell me everything", "and then this"]


async def test_exit_without_a_message_stores_no_session(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await screen.press("c-d")
        assert await screen.exit_code() == 0
    assert (await asyncio.to_thread(program.run, "sessions", "list")).out == ""


async def test_goal_continues_over_turns_until_it_is_reached(program: Program, server: ModelServer) -> None:
    server.script(
        Say("Step one."),
        Say('{"verdict": "continue", "reason": "half of it is missing"}'),
        Say("Step two."),
        Say('{"verdict": "done", "reason": "both steps are there"}'),
    )
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/title Steps")
        await screen.wait_for("title is now")
        await say(screen, "/goal take two steps")
        await screen.wait_for("half of it is missing")
        await screen.wait_for("Step two.")
        await screen.wait_for("both steps are there")
        await say(screen, "/goal history")
        await screen.wait_for(re.compile("half of it is missing.*both steps are there", re.DOTALL))
    continuation = server.received[2].json["messages"][-1]
    assert continuation["role"] == "user"
    assert "take two steps" in continuation["content"]


async def test_goal_notices_are_drawn_as_markdown_and_wrapped_at_words(program: Program, server: ModelServer) -> None:
    server.script(Say("Step one."), Say('{"verdict": "continue", "reason": "half of it is missing"}'))
    async with opened(program, columns=60) as screen:
        await ready(screen)
        await say(screen, "/title Steps")
        await screen.wait_for("title is now")
        await say(screen, "/goal take two steps | budget: 1 turn")
        await screen.wait_for("used up. /goal resume")
        lines = screen.lines
    first = next(number for number, line in enumerate(lines) if line.startswith("Goal paused"))
    notice = [line.rstrip() for line in lines[first : first + 3]]
    assert " ".join(notice).startswith(
        "Goal paused (1 of 1 turns), because its budget of 1 turn is used up. /goal resume"
    )
    assert "`" not in " ".join(notice)


async def test_goal_is_shown_in_the_status_bar_and_survives_a_kill(program: Program, server: ModelServer) -> None:
    server.script(Say("Step one."), Say('{"verdict": "continue", "reason": "go on"}'), Say("slow " * 500, pause=0.05))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/title Steps")
        await screen.wait_for("title is now")
        await say(screen, "/goal take two steps")
        await screen.wait_for("slow slow")
        await screen.wait_for("goal 1/20")
        screen.kill()
        await screen.exit_code()
    server.script(Say("Step two."), Say('{"verdict": "done", "reason": "all there"}'))
    async with opened(program, "--continue") as screen:
        await screen.wait_for("Step two.")
        await screen.wait_for("all there")
        await screen.wait_until(lambda: "goal 1/20" not in screen.text)


async def test_undo_restores_the_draft_and_the_old_session_can_be_resumed(
    program: Program, server: ModelServer
) -> None:
    server.script(Say("The first answer."), Say("The second answer."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/title Birds")
        await screen.wait_for("title is now")
        await say(screen, "about herons")
        await screen.wait_for("The first answer.")
        await say(screen, "about storks")
        await screen.wait_for("The second answer.")
        await say_until(screen, "/undo", lambda: typed_line(screen) == "❯ about storks")
        await screen.press("c-c")
        await say(screen, "/resume")
        await screen.wait_for("before undo")
        await screen.press("enter")
        await screen.wait_for(re.compile("gateway off · Birds .*before undo"))
        await say(screen, "/history")
        await screen.wait_for(re.compile("about storks.*The second answer.", re.DOTALL))


async def test_text_typed_while_loading_is_not_lost(program: Program, server: ModelServer) -> None:
    server.script(Say("Quick."))
    async with opened(program) as screen:
        await screen.wait_for(READY)
        await say(screen, "are you there?")
        await screen.wait_for("Quick.")
    assert server.received[0].question == "are you there?"


async def test_background_result_starts_a_turn_in_an_idle_terminal(program: Program, server: ModelServer) -> None:
    command = "mkfifo gate; read _ <gate; echo from the gate"
    server.script(
        Say(calls=[Ask("terminal", {"command": command, "background": True})]),
        Say("It waits."),
        Say("It is over."),
    )
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "open it later")
        await screen.wait_for("It waits.")
        await server.arrived(2)
        await open_gate(program.home / "work" / "gate")
        await screen.wait_for("Background report:")
        await screen.wait_for("It is over.")
    assert "from the gate" in server.received[-1].question


async def test_results_that_arrived_without_a_terminal_are_shown_on_resume(
    program: Program, server: ModelServer
) -> None:
    command = "mkfifo gate; read _ <gate; echo from the gate"
    server.script(Say(calls=[Ask("terminal", {"command": command, "background": True})]), Say("It waits."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "open it later")
        await screen.wait_for("It waits.")
        await server.arrived(2)
        screen.kill()
        await screen.exit_code()
    server.script(Say("It is over."))
    await open_gate(program.home / "work" / "gate")
    async with opened(program, "--continue") as screen:
        await screen.wait_for("It is over.")
    assert "from the gate" in server.received[-1].question
