"""What a model is shown of a long conversation: a summary that is of use, or everything as before."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.agent_fixture import Echo, workshop

from talaria.agent.context_window import ContextWindow, Summary, WindowMemory, estimate_tokens, list_open_calls
from talaria.contracts.provider import ModelInfo
from talaria.contracts.stores.sessions import StoredMessage
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


class Kept:
    """Implements `History` for one conversation, and counts the messages that were read."""

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


class Scribe:
    """Implements `Summariser`: returns a fixed summary and records its input."""

    def __init__(self, *answers: str | TalariaError) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, list[str]]] = []

    async def summarise(self, earlier: str, messages: Sequence[Message]) -> str:
        self.asked.append((earlier, [message.text for message in messages]))
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


async def shown(window: ContextWindow, kept: Kept, transcript: Sequence[StoredMessage]) -> list[Message]:
    """Return what a model is shown of a conversation that has come this far."""
    kept.transcript = transcript
    return (await window.open()).messages


def ignore(event: TurnEvent) -> None:
    """Listen to nothing."""


async def test_a_short_conversation_is_shown_as_it_is() -> None:
    transcript = talk(4)
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe())
    assert await shown(window, kept, transcript) == [one.message for one in transcript]
    assert not window.full


async def test_a_long_conversation_is_shown_as_a_summary_and_its_newest_part_word_for_word() -> None:
    kept, transcript, heard = Kept(), talk(40), list[TurnEvent]()
    window = ContextWindow(INFO, kept, Scribe())
    await shown(window, kept, transcript)
    assert window.full
    assert await window.compact(heard.append)
    view = await shown(window, kept, transcript)
    assert GOOD in view[0].text
    assert f"messages 1 to {kept.saved[0].upto} " in view[0].text
    assert view[1:] == [one.message for one in transcript[kept.saved[0].upto :]]
    assert 3 <= len(view) <= 8
    assert [type(event) for event in heard] == [Noticed]
    assert not window.full


async def test_a_later_turn_reads_only_what_is_new() -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe())
    await shown(window, kept, talk(10))
    assert await shown(window, kept, talk(12)) == [one.message for one in talk(12)]
    assert kept.messages_read == 12


async def test_a_conversation_that_was_not_open_is_read_from_its_summary_on() -> None:
    kept = Kept()
    kept.saved = [Summary(90, GOOD)]
    view = await shown(ContextWindow(INFO, kept, Scribe()), kept, talk(100))
    assert GOOD in view[0].text
    assert view[1:] == [one.message for one in talk(100)[90:]]
    assert kept.messages_read == 10


async def test_a_view_counts_what_a_turn_adds() -> None:
    kept = Kept()
    kept.transcript = talk(2)
    view = await ContextWindow(INFO, kept, Scribe()).open()
    assert view.tokens == estimate_tokens(view.messages)
    view.add([user("x" * 400)])
    assert view.tokens == estimate_tokens(view.messages)


async def test_windows_that_take_too_much_memory_together_release_the_least_recently_used() -> None:
    memory = WindowMemory(limit_bytes=60_000)
    histories = [Kept() for _ in range(3)]
    windows = [ContextWindow(INFO, kept, Scribe(), memory) for kept in histories]
    for kept, window in zip(histories, windows, strict=True):
        assert len(await shown(window, kept, talk(20))) == 20
    await shown(windows[1], histories[1], talk(22))
    assert await shown(windows[0], histories[0], talk(22)) == [one.message for one in talk(22)]
    assert [kept.messages_read for kept in histories] == [42, 22, 20]


async def test_a_window_that_was_released_can_still_shrink() -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe())
    await shown(window, kept, talk(40))
    window.release()
    assert await window.compact(ignore)
    assert GOOD in (await window.open()).messages[0].text


async def test_what_the_provider_counted_is_believed_over_an_estimate() -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe())
    await shown(window, kept, talk(2))
    window.measured(760)
    assert window.full
    window.measured(740)
    assert not window.full


def test_writing_that_takes_more_bytes_is_taken_to_be_more_tokens() -> None:
    assert estimate_tokens([user("漢" * 400)]) >= 300
    assert estimate_tokens([user("x" * 400)]) < 110


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
async def test_a_summary_without_use_leaves_the_old_view_in_force(nonsense: str) -> None:
    kept, transcript, heard = Kept(), talk(40), list[TurnEvent]()
    window = ContextWindow(INFO, kept, Scribe(nonsense))
    before = await shown(window, kept, transcript)
    assert not await window.compact(heard.append)
    assert kept.saved == []
    assert heard == []
    assert await shown(window, kept, transcript) == before


async def test_a_summary_that_failed_leaves_the_old_view_in_force() -> None:
    kept, transcript = Kept(), talk(40)
    window = ContextWindow(INFO, kept, Scribe(ProviderOverloaded("down")))
    before = await shown(window, kept, transcript)
    assert not await window.compact(ignore)
    assert kept.saved == []
    assert await shown(window, kept, transcript) == before


@pytest.mark.parametrize(
    "summary",
    [
        GOOD,
        "粉刷棚子。绿色两层在下雨之前完成。棚子宽三米。安有梯子。底漆已完成。屋顶未完成。还要买两桶油漆和一把新刷子。星期六之前要做完。",
        "Facts:\n" + "\n".join(f"- room {n}: {n * 37 % 101} chairs, {n * 53 % 97} tables" for n in range(30)),
    ],
    ids=["prose", "another script", "a list"],
)
async def test_a_summary_of_any_kind_is_taken(summary: str) -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe(summary))
    await shown(window, kept, talk(20))
    assert await window.compact(ignore)
    assert kept.saved[0].text == summary


async def test_a_second_summary_carries_on_the_first_and_reads_only_what_came_after_it() -> None:
    kept, scribe = Kept(), Scribe()
    window = ContextWindow(INFO, kept, scribe)
    await shown(window, kept, talk(20))
    assert await window.compact(ignore)
    first = kept.saved[0].upto
    await shown(window, kept, talk(30))
    assert await window.compact(ignore)
    earlier, texts = scribe.asked[-1]
    assert earlier == GOOD
    assert texts[0].startswith(f"message {first + 1} ")
    assert kept.saved[1].upto > first


async def test_a_failed_second_summary_leaves_the_first_in_force() -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe(GOOD, ""))
    await shown(window, kept, talk(20))
    assert await window.compact(ignore)
    before = await shown(window, kept, talk(24))
    assert not await window.compact(ignore)
    assert await shown(window, kept, talk(24)) == before


async def test_nothing_new_means_no_new_summary() -> None:
    scribe = Scribe()
    kept = Kept()
    window = ContextWindow(INFO, kept, scribe)
    await shown(window, kept, talk(20))
    assert await window.compact(ignore)
    await shown(window, kept, talk(20))
    assert not await window.compact(ignore)
    assert len(scribe.asked) == 1


async def test_a_past_larger_than_a_models_window_is_summarised_in_portions() -> None:
    scribe = Scribe()
    kept = Kept()
    window = ContextWindow(INFO, kept, scribe)
    await shown(window, kept, talk(400))
    assert await window.compact(ignore)
    assert len(scribe.asked) > 10
    assert scribe.asked[0][0] == ""
    assert all(earlier == GOOD for earlier, _ in scribe.asked[1:])
    assert all(sum(map(len, texts)) <= INFO.context_limit * 4 for _, texts in scribe.asked)
    told = [text.split()[1] for _, texts in scribe.asked for text in texts]
    assert told == [str(number) for number in range(1, len(told) + 1)]


async def test_one_portion_without_a_useful_summary_leaves_the_old_view_in_force() -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe(GOOD, GOOD, "no"))
    await shown(window, kept, talk(400))
    assert not await window.compact(ignore)
    assert kept.saved == []


async def test_a_single_message_that_is_too_long_cannot_be_summarised_away() -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe())
    await shown(window, kept, talk(1, length=10_000))
    assert not await window.compact(ignore)


async def test_a_turn_that_grows_too_long_by_itself_is_summarised_while_it_runs(tmp_path: Path) -> None:
    def page(arguments: object, call: object) -> str:
        return "a line of the page\n" * 400

    async with workshop(tmp_path) as shop:
        steps = [Say(calls=[Ask("read", {"word": str(number)})]) for number in range(4)]
        shop.server.script(*steps, context_too_long(), Say(GOOD), Say("read it all"))
        assert await shop.say("read the book", Echo("read", does=page)) == TurnAnswered("read it all")
        sent = shop.server.received[-1].json["messages"]
        assert GOOD in sent[1]["content"]
        assert len(sent) == 6
        assert len(await shop.transcript()) == 10


async def test_a_summariser_that_declines_leaves_the_old_view_in_force(tmp_path: Path) -> None:
    declined = Say(
        "I am sorry, but a conversation of this kind is not something that I can write about.", stop="refused"
    )
    async with workshop(tmp_path) as shop:
        for number in range(12):
            await shop.say(f"fact {number}: " + "x" * 3_000)
        shop.server.script(context_too_long(), declined)
        assert isinstance(await shop.say("what now?"), TurnFailed)
        assert await shop.store.read(lambda tx: read_summary(tx, shop.session_id)) is None


@st.composite
def conversations(draw: st.DrawFn) -> list[StoredMessage]:
    """Conversations whose replies call tools now and then, with words of the person in between."""
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
async def test_no_call_is_ever_parted_from_its_result(transcript: list[StoredMessage], data: st.DataObject) -> None:
    kept = Kept()
    window = ContextWindow(INFO, kept, Scribe())
    length = 1
    while length <= len(transcript):
        length += data.draw(st.integers(1, 8))
        await shown(window, kept, transcript[:length])
        await window.compact(ignore)
        view = await shown(window, kept, transcript[:length])
        calls = [part.id for one in view for part in one.parts if isinstance(part, ToolCall)]
        results = [part.call_id for one in view for part in one.parts if isinstance(part, ToolResult)]
        still_open = [call.id for call in list_open_calls([one.message for one in transcript[:length]])]
        assert calls == results + still_open
        assert view[-1] == transcript[min(length, len(transcript)) - 1].message
