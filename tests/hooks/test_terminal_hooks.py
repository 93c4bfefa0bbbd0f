"""Hooks without a gateway: a single question from a shell."""

import asyncio
from pathlib import Path

from tests.app.program_with_model import scripted_program, talk
from tests.hooks.hook_folders import notes, write_hook
from tests.house.test_start import loaded

from talaria.testing.model_server import ModelServer, Say


async def test_question_from_a_shell_sends_all_turn_events(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    folder = write_hook(tmp_path / "profiles" / "default" / "hooks", "notes")
    server.script(Say("Twelve."))
    answered = await talk(program, "chat", "-q", "How many?")
    assert (answered.code, answered.out.strip(), answered.err) == (0, "Twelve.", "")
    events = notes(folder)
    assert [event for event, _ in events] == ["session:start", "agent:start", "agent:step", "agent:end"]
    assert (events[1][1]["text"], events[3][1]["text"], events[3][1]["source"]) == ("How many?", "Twelve.", "cli")


async def test_hanging_hook_does_not_delay_the_answer(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    code = "import threading\n\ndef handle(event, facts):\n    threading.Event().wait()\n"
    write_hook(tmp_path / "profiles" / "default" / "hooks", "hangs", handler=code)
    server.script(Say("Twelve."))
    answered = await talk(program, "chat", "-q", "How many?")
    assert (answered.code, answered.out.strip()) == (0, "Twelve.")


async def test_hook_modules_are_not_imported_without_a_hooks_folder(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    modules = await asyncio.to_thread(loaded, program, "chat", "-q", "hello")
    assert {one for one in modules if one.startswith("talaria.hooks")} == set()
