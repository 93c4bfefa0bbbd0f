"""Hooks where there is no gateway: a question from a shell."""

import asyncio
from pathlib import Path

from tests.app.program_with_model import scripted_program, talk
from tests.hooks.hook_folders import notes, write_hook
from tests.house.test_start import loaded

from talaria.testing.model_server import ModelServer, Say


async def test_a_question_from_a_shell_is_heard_to_its_end(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    folder = write_hook(tmp_path / "profiles" / "default" / "hooks", "notes")
    server.script(Say("Twelve."))
    answered = await talk(program, "chat", "-q", "How many?")
    assert (answered.code, answered.out.strip(), answered.err) == (0, "Twelve.", "")
    heard = notes(folder)
    assert [event for event, _ in heard] == ["session:start", "agent:start", "agent:step", "agent:end"]
    assert (heard[1][1]["text"], heard[3][1]["text"], heard[3][1]["source"]) == ("How many?", "Twelve.", "cli")


async def test_a_hook_that_hangs_keeps_no_answer_back(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    code = "import threading\n\ndef handle(event, facts):\n    threading.Event().wait()\n"
    write_hook(tmp_path / "profiles" / "default" / "hooks", "hangs", handler=code)
    server.script(Say("Twelve."))
    answered = await talk(program, "chat", "-q", "How many?")
    assert (answered.code, answered.out.strip()) == (0, "Twelve.")


async def test_without_a_folder_of_hooks_nothing_of_them_is_loaded(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    modules = await asyncio.to_thread(loaded, program, "chat", "-q", "hello")
    assert {one for one in modules if one.startswith("talaria.hooks")} == set()
