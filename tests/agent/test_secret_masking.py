"""Secrets are masked in results, errors and progress of tools."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.agent.agent_fixture import AgentSession, Echo, Word, open_agent_session

from talaria.contracts.tool import Call
from talaria.core.errors import ToolFailed
from talaria.core.events import ToolCalled, ToolProgressed
from talaria.testing.model_server import Ask, Say

SECRET = "correct horse battery staple"


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


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
async def test_secrets_reach_neither_the_model_nor_the_store_nor_the_events(
    agent_session: AgentSession, does: object
) -> None:
    tool = Echo("tell", does=does)  # type: ignore[arg-type]  # one of three functions that pytest hands over
    agent_session.server.script(Say(calls=[Ask("tell", {"word": "now"})]), Say("Done."))
    await agent_session.say("go on", tool, environment=agent_session.environment(mask=mask))
    assert "****" in agent_session.server.received[1].body.decode()
    seen = msgspec.json.encode([await agent_session.transcript(), agent_session.events]).decode()
    assert SECRET not in seen + agent_session.server.received[1].body.decode()


async def test_summary_and_progress_of_a_call_are_masked(agent_session: AgentSession) -> None:
    agent_session.server.script(Say(calls=[Ask("tell", {"word": SECRET})]), Say("Done."))
    await agent_session.say("go on", Echo("tell", does=report), environment=agent_session.environment(mask=mask))
    assert [event.summary for event in agent_session.events_of(ToolCalled)] == ["tell: ****"]
    assert [event.text for event in agent_session.events_of(ToolProgressed)] == ["half-way: ****"]
