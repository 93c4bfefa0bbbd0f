"""Workers killed without warning, within tool calls and elsewhere: their turns resume correctly."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agent.agent_fixture import AgentSession, open_agent_session
from tests.app import warm_program
from tests.app.warm_program import WarmProcess
from tests.contracts.sample_messages import text_message

from talaria.contracts.tool import Effect
from talaria.core.messages import ToolCall, ToolResult
from talaria.runtime.turns import add_to_inbox
from talaria.testing.model_server import Answer, Ask, Received, Say
from talaria.testing.wait import until

ROOT = Path(__file__).parent.parent.parent
REPEATABLE = (Effect.READS, Effect.IDEMPOTENT)
NOTHING_TO_DO = "None"  # printed by a worker that found no turn to run


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        await add_to_inbox(agent_session.store, agent_session.session_id, "test", "1", text_message("do it all"))
        yield agent_session


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    return 100 if request.config.getoption("--long") else 6


class Chain:
    """Workers of one session, each started after the previous one was killed."""

    def __init__(self, agent_session: AgentSession) -> None:
        self._agent_session = agent_session
        self._lives = 0
        self.journal = agent_session.folder / "journal"

    async def start(self, doom: str = "") -> WarmProcess:
        self._lives += 1
        agent_session = self._agent_session
        location = [
            str(agent_session.folder / "talaria.db"),
            agent_session.server.url.rpartition(":")[2],
            agent_session.session_id,
        ]
        arguments = [*location, str(self.journal), str(self._lives), doom]
        return await warm_program.start_module("tests.agent.crash_child", *arguments, stdout=warm_program.PIPE)

    async def die_in(self, word: str, moment: float) -> None:
        """Kill a worker within a call, some time after the call started."""
        worker = await self.start(doom=word)
        while await _line(worker) != word:
            pass
        await asyncio.sleep(moment)  # real time: the kill comes at a random moment
        worker.kill()
        await worker.wait()

    async def die_after(self, calls: int, moment: float) -> bool:
        """Kill a worker some time after the start of a call; return whether it had not ended by then."""
        was_answered = await _is_answered(self._agent_session)
        worker = await self.start()
        for _ in range(calls):
            line = await _line(worker)
            assert (line == NOTHING_TO_DO) == was_answered, line
            if line == NOTHING_TO_DO or line.startswith("Turn"):
                assert await _is_answered(self._agent_session)
                break
        await asyncio.sleep(moment)  # real time: the kill comes at a random moment
        if worker.returncode is None:
            worker.kill()
        return await worker.wait() != 0

    async def survive(self) -> str:
        """Let a worker finish the turn and return its last line of output."""
        worker = await self.start()
        output, _ = await worker.communicate()
        assert worker.returncode == 0
        return output.decode().splitlines()[-1]

    async def repeat_nothing(self) -> None:
        """Check that a worker which finds the turn answered runs no tool, calls no model and writes no message."""
        before = self.counts(), len(self._agent_session.server.received), await self._agent_session.transcript()
        assert await self.survive() == NOTHING_TO_DO
        assert (
            self.counts(),
            len(self._agent_session.server.received),
            await self._agent_session.transcript(),
        ) == before

    def counts(self) -> Counter[str]:
        """Return how often each call started and ended."""
        return Counter(self.journal.read_text().splitlines())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("effect", Effect)
async def test_turn_is_completed_after_a_worker_was_killed_within_each_call(
    agent_session: AgentSession, count: int, effect: Effect
) -> None:
    def answer(received: Received) -> Answer:
        done = sum(message["role"] == "tool" for message in received.json["messages"])
        return Say("all done") if done == count else Say(calls=[Ask(effect.value, {"word": str(done)}, id="call_0")])

    agent_session.server.answering(answer)
    chain, chance = Chain(agent_session), random.Random(effect.value)
    for number in range(count):
        await chain.die_in(str(number), chance.uniform(0, 0.01))
    assert "all done" in await chain.survive()
    counts, results = chain.counts(), await _results(agent_session)
    for number in range(count):
        if effect in REPEATABLE:
            assert (counts[f"begin {number}"], counts[f"end {number}"]) == (2, 1)
            assert results[number].text == f"did {number}"
        else:
            assert (counts[f"begin {number}"], counts[f"end {number}"]) == (1, 0)
            assert "outcome is unknown" in results[number].text
    await _check_complete(agent_session, calls=count)


@pytest.mark.timeout(600)
async def test_worker_killed_at_any_moment_repeats_no_irreversible_call(
    agent_session: AgentSession, count: int
) -> None:
    def answer(received: Received) -> Answer:
        done = sum(message["role"] == "tool" for message in received.json["messages"]) // 3
        calls = [Ask(effect.value, {"word": f"{effect.value}-{done}"}) for effect in Effect]
        return Say("all done") if done == count else Say(f"step {done}", calls=calls)

    agent_session.server.answering(answer)
    chain, chance = Chain(agent_session), random.Random(3)
    for _ in range(count):
        if not await chain.die_after(chance.randint(1, 4), chance.expovariate(1 / 0.005)):
            break
    if await _is_answered(agent_session):  # the last kill came after the end of the turn
        await chain.repeat_nothing()
    else:
        assert "all done" in await chain.survive()
    counts, results = chain.counts(), await _results(agent_session)
    for number in range(count):
        for effect in REPEATABLE:
            text = results[3 * number + list(Effect).index(effect)].text
            assert counts[f"end {effect.value}-{number}"] >= 1 or "cut off twice" in text
        word = f"{Effect.IRREVERSIBLE.value}-{number}"
        outcome = results[3 * number + list(Effect).index(Effect.IRREVERSIBLE)].text
        assert counts[f"begin {word}"] <= 1
        assert outcome == f"did {word}" or "outcome is unknown" in outcome
    await _check_complete(agent_session, calls=3 * count)


@pytest.mark.timeout(600)
async def test_worker_killed_after_its_turn_leaves_nothing_to_repeat(agent_session: AgentSession) -> None:
    agent_session.server.script(Say(calls=[Ask(Effect.IRREVERSIBLE.value, {"word": "once"})]), Say("all done"))
    chain = Chain(agent_session)
    worker = await chain.start()
    await until(lambda: _is_answered(agent_session))
    if worker.returncode is None:
        worker.kill()
    await worker.wait()
    await chain.repeat_nothing()
    assert chain.counts() == {"begin once": 1, "end once": 1}
    await _check_complete(agent_session, calls=1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("effect", REPEATABLE)
async def test_tool_call_cut_off_twice_is_not_run_a_third_time(agent_session: AgentSession, effect: Effect) -> None:
    agent_session.server.script(Say(calls=[Ask(effect.value, {"word": "poison"})]), Say("all done"))
    chain = Chain(agent_session)
    await chain.die_in("poison", 0)
    await chain.die_in("poison", 0)
    assert "all done" in await chain.survive()
    (result,) = await _results(agent_session)
    assert chain.counts() == {"begin poison": 2}
    assert result.failed
    assert "cut off twice" in result.text
    assert "outcome is unknown" in result.text
    await _check_complete(agent_session, calls=1)


async def _is_answered(agent_session: AgentSession) -> bool:
    """Return whether the only turn has ended, in the store that the next worker opens."""
    turns = await agent_session.store.read(lambda tx: tx.turns.find(agent_session.session_id))
    return [turn.state for turn in turns] == ["answered"]


async def _results(agent_session: AgentSession) -> list[ToolResult]:
    parts = [part for stored in await agent_session.transcript() for part in stored.message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


async def _check_complete(agent_session: AgentSession, *, calls: int) -> None:
    """Check that the session is complete: a result after every call, one answer, and an empty inbox."""
    transcript = [stored.message for stored in await agent_session.transcript()]
    open_ids: list[str] = []
    total = 0
    for message in transcript:
        requested = [part.id for part in message.parts if isinstance(part, ToolCall)]
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        assert results == open_ids
        open_ids = requested
        total += len(requested)
    assert total == calls
    assert [message.text for message in transcript if message.role == "user"] == ["do it all"]
    assert [message.text for message in transcript].count("all done") == 1
    assert transcript[-1].text == "all done"
    assert await agent_session.store.read(lambda tx: tx.inbox.list_unsettled(agent_session.session_id)) == []
    [turn] = await agent_session.store.read(lambda tx: tx.turns.find(agent_session.session_id))
    assert turn.state == "answered"


async def _line(worker: WarmProcess) -> str:
    assert worker.stdout is not None
    line = (await worker.stdout.readline()).decode().strip()
    assert line, "the worker ended without output"
    return line
