"""Secrets are masked in results, errors and progress of tools."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.agent.agent_fixture import Echo, Word, Workshop, workshop

from talaria.contracts.tool import Call
from talaria.core.errors import ToolFailed
from talaria.core.events import ToolCalled, ToolProgressed
from talaria.testing.model_server import Ask, Say

SECRET = "correct horse battery staple"


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as shop:
        yield shop


def mask(text: str) -> str:
    return text.replace(SECRET, "****")


def fail(word: Word, call: Call) -> str:
    raise ToolFailed(f"not with {SECRET}")


def raise_error(word: Word, call: Call) -> str:
    raise ValueError(f"odd: {SECRET}")


def report(word: Word, call: Call) -> str:
    call.progress(f"half-way: {SECRET}")
    return f"{SECRET}{'.' * 60_000}{SECRET}"


@pytest.mark.parametrize("does", [fail, raise_error, report])
async def test_secrets_reach_neither_the_model_nor_the_store_nor_the_events(shop: Workshop, does: object) -> None:
    tool = Echo("tell", does=does)  # type: ignore[arg-type]  # one of three functions that pytest hands over
    shop.server.script(Say(calls=[Ask("tell", {"word": "now"})]), Say("Done."))
    await shop.say("go on", tool, around=shop.around(mask=mask))
    assert "****" in shop.server.received[1].body.decode()
    seen = msgspec.json.encode([await shop.transcript(), shop.events]).decode()
    assert SECRET not in seen + shop.server.received[1].body.decode()


async def test_summary_and_progress_of_a_call_are_masked(shop: Workshop) -> None:
    shop.server.script(Say(calls=[Ask("tell", {"word": SECRET})]), Say("Done."))
    await shop.say("go on", Echo("tell", does=report), around=shop.around(mask=mask))
    assert [event.summary for event in shop.heard(ToolCalled)] == ["tell: ****"]
    assert [event.text for event in shop.heard(ToolProgressed)] == ["half-way: ****"]
