"""Answered questions show the decision instead of their buttons, on every network."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.in_process_gateway import run_gateway
from tests.platforms.discord.far_side import discord_far_side
from tests.platforms.slack.far_side import slack_far_side
from tests.platforms.telegram.far_side import telegram_far_side

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.platform_suite import FarSide, VisibleMessage
from talaria.testing.wait import until

FAR_SIDES: dict[str, Callable[[], AbstractAsyncContextManager[Any]]] = {
    "telegram": telegram_far_side,
    "discord": discord_far_side,
    "slack": slack_far_side,
}
QUESTION = Say("Let me ask.", calls=[Ask("clarify", {"question": "Tea or milk?", "choices": ["tea", "milk"]})])
EDITING = PlatformCapabilities(text_limit=4096, edits=True, buttons=True)


async def until_seen(side: FarSide, matches: Callable[[list[VisibleMessage]], bool]) -> list[VisibleMessage]:
    async def look() -> tuple[list[VisibleMessage], ...]:
        seen = await side.seen(side.private)
        return (seen,) if matches(seen) else ()

    return (await until(look))[0]


@asynccontextmanager
async def asked_question(
    network: LoopbackNetwork, tmp_path: Path, server: ModelServer
) -> AsyncIterator[tuple[str, str]]:
    """Ask Ann a question; yield the id of its message and the value of its first button."""
    server.script(QUESTION, Say("Fine."))
    async with run_gateway(tmp_path, network.platform(), server.url):
        network.say("ann", "go")
        await network.until(lambda: any(post.buttons for post in network.posts))
        question = next(post for post in network.posts if post.buttons)
        yield question.message_id, question.buttons[0].value


@pytest.mark.parametrize("name", FAR_SIDES)
async def test_answered_question_shows_the_decision_instead_of_buttons(
    name: str, tmp_path: Path, server: ModelServer
) -> None:
    server.script(QUESTION, Say("Fine."))
    async with FAR_SIDES[name]() as side, run_gateway(tmp_path, side.platform, server.url) as gateway:
        await until_seen(side, lambda _: gateway.network.status.state == "connected")
        await side.says(side.private, "go")
        seen = await until_seen(side, lambda found: any(one.buttons for one in found))
        index, question = next((index, one) for index, one in enumerate(seen) if one.buttons)
        assert [one.text.partition("\n")[0] for one in seen[:index]] == ["Let me ask."]
        await side.presses(side.private, question.message_id, "tea")
        seen = await until_seen(side, lambda found: not found[index].buttons and found[-1].text == "Fine.")
        assert seen[index].text.startswith("Tea or milk?")
        assert "tea" in seen[index].text.removeprefix("Tea or milk?")


async def test_second_press_is_answered_with_a_notice(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(EDITING) as network, asked_question(network, tmp_path, server) as (message_id, value):
        network.press("ann", message_id, value)
        await network.until(lambda: "Fine." in network.shown("ann"))
        await network.until(lambda: "Tea or milk?\n\n▸ **tea**" in network.shown("ann"))
        network.press("ann", message_id, value)
        await network.until(lambda: "That question is no longer open." in network.shown("ann"))


async def test_stopping_the_turn_closes_its_open_question(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(EDITING) as network, asked_question(network, tmp_path, server):
        network.say("ann", "/stop")
        await network.until(lambda: any("no longer open" in text for text in network.shown("ann")))
