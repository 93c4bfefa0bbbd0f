"""Context window of a long session: a useful summary and recent messages, or everything as before."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.agent_fixture import Echo, open_agent_session

from talaria.agent.context_window import ContextWindow, WindowMemory, estimate_tokens, list_open_calls
from talaria.contracts.provider import ModelInfo
from talaria.contracts.stores.sessions import StoredMessage
from talaria.contracts.turns import Summary
from talaria.core.errors import ProviderOverloaded, TalariaError
from talaria.core.events import Noticed, TurnAnswered, TurnEvent, TurnFailed
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text, ToolCall, ToolResult
from talaria.sessions.model_context import read_summary
from talaria.testing.model_server import Ask, Say, context_too_long

NOW = datetime(2026, 1, 2, tzinfo=UTC)
INFO = ModelInfo(name="small", context_limit=1_000)
GOOD = (
    "Goal: paint the shed. Decisions: green, two coats, before the first rain. Facts and names: the shed is 3 m wide"
    " and Ann has the ladder. Done: the primer. Open: the roof."
)
NONSENSE = {
    "empty": "",
    "blank": " \n\t ",
    "too short": "Green shed.",
    "the same word over and over": "the the " * 100,
    "a line that repeats itself": "I will now write the summary of it.\n" * 60,
    "no words": "|-|-| {}[] ... --- *** ### " * 5 + "|||||| ::::: ;;;;; ,,,,, !!!!! ?????",
    "longer than what it stands for": " ".join(f"word{number}" for number in range(20_000)),
}


class RecordedHistory:
    """Implements `History` for one session, and counts the messages that were read."""

    def __init__(self) -> None:
        self.transcript: Sequence[StoredMessage] = ()
        self.saved: list[Summary] = []
        self.messages_read = 0

    async def read(self, after: int) -> tuple[Summary | None, list[StoredMessage]]:
        summary = self.saved[-1] if self.saved else None
        first = max(after, summary.upto if summary else 0)
        found = [stored for stored in self.transcript if stored.seq > first]
        self.messages_read += len(found)
        return summary, found

    async def save(self, summary: Summary) -> None:
        self.saved.append(summary)


class FixedSummariser:
    """Implements `Summariser`: returns a fixed summary and records its input."""

    def __init__(self, *answers: str | TalariaError) -> None:
        self._answers = list(answers)
        self.inputs: list[tuple[str, list[str]]] = []

    async def summarise(self, earlier: str, messages: Sequence[Message]) -> str:
        self.inputs.append((earlier, [message.text for message in messages]))
        answer = self._answers.pop(0) if self._answers else GOOD
        if isinstance(answer, TalariaError):
            raise answer
        return answer


def stored(messages: Sequence[Message]) -> list[StoredMessage]:
    return [StoredMessage(SessionId("s"), seq, message) for seq, message in enumerate(messages, 1)]


def user(text: str) -> Message:
    return Message(role="user", parts=(Text(text),), at=NOW)


def assistant(text: str, *calls: str) -> Message:
    return Message(role="assistant", parts=(Text(text), *(ToolCall(call, "look", "{}") for call in calls)), at=NOW)


def tool(text: str, *calls: str) -> Message:
    return Message(role="tool", parts=tuple(ToolResult(call, text) for call in calls), at=NOW)


def talk(count: int, length: int = 200) -> list[StoredMessage]:
    return stored([(user, assistant)[n % 2](f"message {n + 1} " + "x" * length) for n in range(count)])


async def shown(window: ContextWindow, history: RecordedHistory, transcript: Sequence[StoredMessage]) -> list[Message]:
    """Return the messages that a model sees of a transcript."""
    history.transcript = transcript
    return (await window.open()).messages


def ignore(event: TurnEvent) -> None:
    """Ignore turn events."""


async def test_short_session_is_shown_in_full() -> None:
    transcript = talk(4)
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser())
    assert await shown(window, history, transcript) == [one.message for one in transcript]
    assert not window.full


async def test_long_session_is_shown_as_summary_and_unchanged_recent_messages() -> None:
    history, transcript, events = RecordedHistory(), talk(40), list[TurnEvent]()
    window = ContextWindow(INFO, history, FixedSummariser())
    await shown(window, history, transcript)
    assert window.full
    assert await window.compact(events.append)
    view = await shown(window, history, transcript)
    assert GOOD in view[0].text
    assert f"messages 1 to {history.saved[0].upto} " in view[0].text
    assert view[1:] == [one.message for one in transcript[history.saved[0].upto :]]
    assert 3 <= len(view) <= 8
    assert [type(event) for event in events] == [Noticed]
    assert not window.full


async def test_later_turn_reads_only_new_messages() -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser())
    await shown(window, history, talk(10))
    assert await shown(window, history, talk(12)) == [one.message for one in talk(12)]
    assert history.messages_read == 12


async def test_newly_opened_session_is_read_from_its_summary() -> None:
    history = RecordedHistory()
    history.saved = [Summary(90, GOOD)]
    view = await shown(ContextWindow(INFO, history, FixedSummariser()), history, talk(100))
    assert GOOD in view[0].text
    assert view[1:] == [one.message for one in talk(100)[90:]]
    assert history.messages_read == 10


async def test_tokens_of_a_view_include_messages_added_by_the_turn() -> None:
    history = RecordedHistory()
    history.transcript = talk(2)
    view = await ContextWindow(INFO, history, FixedSummariser()).open()
    assert view.tokens == estimate_tokens(view.messages)
    view.add([user("x" * 400)])
    assert view.tokens == estimate_tokens(view.messages)


async def test_windows_over_the_memory_limit_release_the_least_recently_used() -> None:
    memory = WindowMemory(limit_bytes=60_000)
    histories = [RecordedHistory() for _ in range(3)]
    windows = [ContextWindow(INFO, history, FixedSummariser(), memory) for history in histories]
    for history, window in zip(histories, windows, strict=True):
        assert len(await shown(window, history, talk(20))) == 20
    await shown(windows[1], histories[1], talk(22))
    assert await shown(windows[0], histories[0], talk(22)) == [one.message for one in talk(22)]
    assert [history.messages_read for history in histories] == [42, 22, 20]


async def test_released_window_can_be_compacted() -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser())
    await shown(window, history, talk(40))
    window.release()
    assert await window.compact(ignore)
    assert GOOD in (await window.open()).messages[0].text


async def test_token_count_of_the_provider_replaces_the_estimate() -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser())
    await shown(window, history, talk(2))
    window.record_tokens(760)
    assert window.full
    window.record_tokens(740)
    assert not window.full


def test_text_with_more_bytes_is_estimated_as_more_tokens() -> None:
    assert estimate_tokens([user("漢" * 400)]) >= 300
    assert estimate_tokens([user("x" * 400)]) < 110


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
async def test_useless_summary_is_rejected_and_the_view_stays(nonsense: str) -> None:
    history, transcript, events = RecordedHistory(), talk(40), list[TurnEvent]()
    window = ContextWindow(INFO, history, FixedSummariser(nonsense))
    before = await shown(window, history, transcript)
    assert not await window.compact(events.append)
    assert history.saved == []
    assert events == []
    assert await shown(window, history, transcript) == before


async def test_failed_summary_leaves_the_view_unchanged() -> None:
    history, transcript = RecordedHistory(), talk(40)
    window = ContextWindow(INFO, history, FixedSummariser(ProviderOverloaded("down")))
    before = await shown(window, history, transcript)
    assert not await window.compact(ignore)
    assert history.saved == []
    assert await shown(window, history, transcript) == before


@pytest.mark.parametrize(
    "summary",
    [
        GOOD,
        "粉刷棚子。绿色两层在下雨之前完成。棚子宽三米。安有梯子。底漆已完成。屋顶未完成。还要买两桶油漆和一把新刷子。星期六之前要做完。",
        "Facts:\n" + "\n".join(f"- room {n}: {n * 37 % 101} chairs, {n * 53 % 97} tables" for n in range(30)),
    ],
    ids=["prose", "another script", "a list"],
)
async def test_summary_in_prose_another_script_or_a_list_is_accepted(summary: str) -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser(summary))
    await shown(window, history, talk(20))
    assert await window.compact(ignore)
    assert history.saved[0].text == summary


async def test_second_summary_extends_the_first_and_reads_only_later_messages() -> None:
    history, summariser = RecordedHistory(), FixedSummariser()
    window = ContextWindow(INFO, history, summariser)
    await shown(window, history, talk(20))
    assert await window.compact(ignore)
    first = history.saved[0].upto
    await shown(window, history, talk(30))
    assert await window.compact(ignore)
    earlier, texts = summariser.inputs[-1]
    assert earlier == GOOD
    assert texts[0].startswith(f"message {first + 1} ")
    assert history.saved[1].upto > first


async def test_failed_second_summary_leaves_the_first_in_use() -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser(GOOD, ""))
    await shown(window, history, talk(20))
    assert await window.compact(ignore)
    before = await shown(window, history, talk(24))
    assert not await window.compact(ignore)
    assert await shown(window, history, talk(24)) == before


async def test_session_without_new_messages_is_not_summarised_again() -> None:
    summariser = FixedSummariser()
    history = RecordedHistory()
    window = ContextWindow(INFO, history, summariser)
    await shown(window, history, talk(20))
    assert await window.compact(ignore)
    await shown(window, history, talk(20))
    assert not await window.compact(ignore)
    assert len(summariser.inputs) == 1


async def test_messages_that_exceed_the_context_limit_are_summarised_in_portions() -> None:
    summariser = FixedSummariser()
    history = RecordedHistory()
    window = ContextWindow(INFO, history, summariser)
    await shown(window, history, talk(400))
    assert await window.compact(ignore)
    assert len(summariser.inputs) > 10
    assert summariser.inputs[0][0] == ""
    assert all(earlier == GOOD for earlier, _ in summariser.inputs[1:])
    assert all(sum(map(len, texts)) <= INFO.context_limit * 4 for _, texts in summariser.inputs)
    numbers = [text.split()[1] for _, texts in summariser.inputs for text in texts]
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


async def test_useless_summary_of_one_portion_leaves_the_view_unchanged() -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser(GOOD, GOOD, "no"))
    await shown(window, history, talk(400))
    assert not await window.compact(ignore)
    assert history.saved == []


async def test_single_message_that_is_too_long_is_not_summarised() -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser())
    await shown(window, history, talk(1, length=10_000))
    assert not await window.compact(ignore)


async def test_turn_that_exceeds_the_context_limit_is_summarised_while_it_runs(tmp_path: Path) -> None:
    def page(arguments: object, call: object) -> str:
        return "a line of the page\n" * 400

    async with open_agent_session(tmp_path) as agent_session:
        steps = [Say(calls=[Ask("read", {"word": str(number)})]) for number in range(4)]
        agent_session.server.script(*steps, context_too_long(), Say(GOOD), Say("read it all"))
        assert await agent_session.say("read the book", Echo("read", does=page)) == TurnAnswered("read it all")
        sent = agent_session.server.received[-1].json["messages"]
        assert GOOD in sent[1]["content"]
        assert len(sent) == 6
        assert len(await agent_session.transcript()) == 10


async def test_refusal_of_the_summariser_stores_no_summary(tmp_path: Path) -> None:
    declined = Say(
        "I am sorry, but a conversation of this kind is not something that I can write about.", stop="refused"
    )
    async with open_agent_session(tmp_path) as agent_session:
        for number in range(12):
            await agent_session.say(f"fact {number}: " + "x" * 3_000)
        agent_session.server.script(context_too_long(), declined)
        assert isinstance(await agent_session.say("what now?"), TurnFailed)
        assert await agent_session.store.read(lambda tx: read_summary(tx, agent_session.session_id)) is None


@st.composite
def conversations(draw: st.DrawFn) -> list[StoredMessage]:
    """Transcripts whose replies sometimes call tools, with messages of the person in between."""
    messages: list[Message] = []
    for turn in range(draw(st.integers(1, 12))):
        messages.append(user("u" * draw(st.integers(1, 900))))
        for step in range(draw(st.integers(0, 4))):
            calls = [f"{turn}-{step}-{number}" for number in range(draw(st.integers(1, 3)))]
            messages += [assistant("", *calls), tool("t" * draw(st.integers(0, 1_500)), *calls)]
            if draw(st.booleans()):
                messages.append(user("joined"))
        messages.append(assistant("a" * draw(st.integers(1, 900))))
    return stored(messages)


@pytest.mark.slow
@given(conversations(), st.data())
async def test_tool_call_and_result_are_never_separated_by_a_summary(
    transcript: list[StoredMessage], data: st.DataObject
) -> None:
    history = RecordedHistory()
    window = ContextWindow(INFO, history, FixedSummariser())
    length = 1
    while length <= len(transcript):
        length += data.draw(st.integers(1, 8))
        await shown(window, history, transcript[:length])
        await window.compact(ignore)
        view = await shown(window, history, transcript[:length])
        calls = [part.id for one in view for part in one.parts if isinstance(part, ToolCall)]
        results = [part.call_id for one in view for part in one.parts if isinstance(part, ToolResult)]
        still_open = [call.id for call in list_open_calls([one.message for one in transcript[:length]])]
        assert calls == results + still_open
        assert view[-1] == transcript[min(length, len(transcript)) - 1].message
