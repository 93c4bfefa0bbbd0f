"""Model picker with a filter: `/model` in the chat, `talaria model` on a terminal."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program, talk
from tests.cli.chat.chat_screen import opened, ready, say
from tests.cli.terminal_dialogue import dialogue

from talaria.testing.model_server import ModelServer

NAMES = ("scripted", *(f"{kind}-{size}b" for kind in ("coder", "writer") for size in range(1, 11)))
FACTS = """
[models.writer-7b]
context_limit = 50000
input_price = 3
output_price = 15
[model.aliases]
fast = "mine:coder-3b"
[embedded]
enabled = false
"""
PROMPT = "Number to choose"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(models=NAMES) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    return scripted_program(tmp_path, server, FACTS)


async def test_typing_filters_the_models_of_the_chat(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/model")
        await screen.wait_for("21 of 21")
        await screen.type("WRI 7")
        await screen.wait_for("Filter: WRI 7▏  1 of 21")
        assert "mine:writer-7b  (50,000 tokens, $3 in, $15 out)" in screen.text
        assert "coder-1b" not in screen.text
        await screen.press("enter")
        await screen.wait_for("now uses mine:writer-7b")


async def test_model_is_unchanged_without_a_match_or_with_escape(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/model")
        await screen.wait_for("21 of 21")
        await screen.type("zzz")
        await screen.wait_for("0 of 21")
        await screen.press("enter")
        await screen.press("backspace")
        await screen.wait_for("Filter: zz▏")
        await screen.press("esc")
        await ready(screen)
        assert "now uses" not in screen.text


async def test_model_command_of_the_chat_accepts_an_alias(program: Program) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "/model fast")
        await screen.wait_for("now uses mine:coder-3b")


async def test_model_on_a_terminal_offers_a_list_and_saves_the_choice(program: Program) -> None:
    async with dialogue(program, "model") as person:
        await person.answer(PROMPT, "writer")
        await person.answer(PROMPT, "nothing like it")
        await person.answer(PROMPT, "writer 7")
        assert await person.end() == 0
    assert "No model has `nothing like it` in its name." in person.text
    assert "Talaria now uses mine:writer-7b." in person.text
    assert 'name = "writer-7b"' in (program.home / "profiles" / "default" / "config.toml").read_text()


async def test_enter_leaves_the_model_unchanged(program: Program) -> None:
    async with dialogue(program, "model") as person:
        await person.answer(PROMPT)
        assert await person.end() == 0
    assert 'name = "scripted"' in (program.home / "profiles" / "default" / "config.toml").read_text()


async def test_command_line_accepts_a_model_alias(program: Program, server: ModelServer) -> None:
    assert "mine:coder-3b" in (await talk(program, "model", "fast")).out
    assert (await talk(program, "config", "set", "model.aliases.slow", "mine:writer-7b")).code == 0
    assert (await talk(program, "chat", "-m", "slow", "-q", "Hello")).code == 0
    assert server.received[-1].json["model"] == "writer-7b"


async def test_models_are_filtered_by_text(program: Program) -> None:
    shown = (await talk(program, "models", "Writer-1")).out.splitlines()
    assert [line.split("\t")[2] for line in shown] == ["writer-1b", "writer-10b"]
