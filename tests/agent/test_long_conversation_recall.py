"""Facts in a long session can still be found, for every outcome of the summariser."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.agent.agent_fixture import INFO, AgentSession, open_agent_session

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SearchQuery
from talaria.core.messages import Message, Text, ToolCall, ToolResult
from talaria.testing.model_server import Answer, Fail, Received, Say, context_too_long

MESSAGES, FACTS = 2_000, 50
START = datetime(2026, 1, 2, tzinfo=UTC)
CHATTER = "We talk of this and that, of the weather and the garden, and of what there is to do tomorrow. " * 2
SUMMARISERS: dict[str, Answer] = {
    "a good summary": Say("Goal: to talk. Facts and names: several codes were given for boxes. Open: what to do next."),
    "an empty one": Say(""),
    "nonsense": Say("ha " * 400),
    "an error": Fail(400),
    "one that forgets everything": Say(
        "Nothing of interest was said by anybody here, neither now nor at any time before."
    ),
}


def fact(number: int) -> str:
    return f"The code of box{number}x is heron{number * 7919 % 9973}q."


def seq_of(number: int) -> int:
    """Return the number of the message with a fact: facts are spread over the whole session."""
    return 7 + number * (MESSAGES // FACTS)


def conversation() -> list[Message]:
    facts = {seq_of(number): fact(number) for number in range(FACTS)}
    return [_message(seq, f"{facts.get(seq, '')} {CHATTER}{seq}") for seq in range(1, MESSAGES + 1)]


def _message(seq: int, text: str) -> Message:
    """Return a message of a session in which every fifth exchange calls a tool."""
    at = START + timedelta(minutes=seq)
    match seq % 10:
        case 2:
            return Message(role="assistant", parts=(Text(text), ToolCall(f"call_{seq}", "look", "{}")), at=at)
        case 3:
            return Message(role="tool", parts=(ToolResult(f"call_{seq - 1}", text),), at=at)
        case _:
            return Message(role="user" if seq % 2 else "assistant", parts=(Text(text),), at=at)


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        await agent_session.store.write(lambda tx: tx.messages.append(agent_session.session_id, conversation()))
        yield agent_session


@pytest.mark.parametrize("summariser", SUMMARISERS.values(), ids=SUMMARISERS)
async def test_every_fact_is_found_after_a_summary(agent_session: AgentSession, summariser: Answer) -> None:
    views: list[list[str]] = []

    def answer(received: Received) -> Answer:
        sent = received.json["messages"]
        if "memory of a long conversation" in sent[0]["content"]:
            return summariser
        views.append([message["content"] or "" for message in sent[1:]])
        return context_too_long() if len(sent) > 200 else Say("I will look it up.")

    agent_session.server.answering(answer)
    await agent_session.say("What was the code of box 13?")
    await agent_session.say("Well?")
    await agent_session.store.write(_index_all)
    hits = await agent_session.store.read(
        lambda tx: [_search_fact(tx, agent_session, number) for number in range(FACTS)]
    )
    read = await agent_session.store.read(lambda tx: [_read_fact(tx, agent_session, number) for number in range(FACTS)])
    assert hits == [seq_of(number) for number in range(FACTS)]
    assert all(text.startswith(fact(number)) for number, text in enumerate(read))
    log = (await agent_session.transcript())[:MESSAGES]
    assert [stored.message for stored in log] == conversation()
    assert _has_unchanged_recent_messages(views[-1])
    assert views[-1][-1] == "Well?"


def _index_all(tx: Transaction) -> None:
    while tx.search.catch_up():
        pass


def _search_fact(tx: Transaction, agent_session: AgentSession, number: int) -> int:
    [hit] = tx.search.find(SearchQuery(text=f"box{number}x", session_id=agent_session.session_id))
    return hit.seq


def _read_fact(tx: Transaction, agent_session: AgentSession, number: int) -> str:
    [stored] = tx.messages.load(agent_session.session_id, after=seq_of(number) - 1, limit=1)
    return stored.message.text


def _has_unchanged_recent_messages(view: list[str]) -> bool:
    """Return whether a view ends with unchanged recent messages, as many as fit in a third of the window."""
    texts = [message.text for message in conversation()]
    last = view.index(texts[-1])
    recent = texts[-last + 1 :] if last < MESSAGES else texts
    return view[last - len(recent) + 1 : last + 1] == recent and sum(map(len, recent)) > INFO.context_limit
