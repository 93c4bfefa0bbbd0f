"""Questions of a turn: answered, unanswered, and closed with the turn."""

import asyncio
from collections.abc import Sequence

from talaria.core.events import ApprovalAsked, QuestionAsked, TurnEvent
from talaria.runtime.questions import PLAN, Questions, answer


class QuestionFixture:
    """Open questions and the events about them."""

    def __init__(self, patience: float = 60) -> None:
        self.events: asyncio.Queue[TurnEvent] = asyncio.Queue()
        self.questions = Questions(self.events.put_nowait, patience=lambda: patience)

    async def next_id(self) -> str:
        event = await self.events.get()
        assert isinstance(event, QuestionAsked | ApprovalAsked)
        return event.id


async def test_an_answer_reaches_the_asking_call() -> None:
    fixture = QuestionFixture()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fixture.questions.ask("Which one?", ("red", "blue")))
        event = await fixture.events.get()
        assert isinstance(event, QuestionAsked)
        assert (event.question, event.choices) == ("Which one?", ("red", "blue"))
        assert fixture.questions.waiting == [event.id]
        assert fixture.questions.answer(event.id, "blue")
    assert asked.result() == "blue"
    assert fixture.questions.waiting == []


async def test_approval_event_has_tool_command_and_reason() -> None:
    fixture = QuestionFixture()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fixture.questions.ask_approval("terminal", "rm -r build", "it deletes"))
        event = await fixture.events.get()
        assert event == ApprovalAsked(fixture.questions.waiting[0], "terminal", "rm -r build", "it deletes")
        fixture.questions.answer(event.id, "once")
    assert asked.result() == "once"


class Chooser:
    """Implements `Prompter`: chooses the first choice, and records what was offered."""

    def __init__(self) -> None:
        self.offered: Sequence[str] = ()

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        self.offered = choices
        return 0

    async def ask(self, question: str) -> str:
        return ""


async def test_plan_approval_offers_only_carrying_out_or_planning_further() -> None:
    fixture, chooser = QuestionFixture(), Chooser()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(
            fixture.questions.ask_approval(PLAN, "First step: terminal: make", "It wants to start.")
        )
        event = await fixture.events.get()
        assert isinstance(event, ApprovalAsked)
        await answer(event, fixture.questions, chooser)
    assert asked.result() == "once"
    assert list(chooser.offered) == ["Carry out the plan", "Keep planning"]


async def test_approvals_are_distinguished_from_questions() -> None:
    fixture = QuestionFixture()
    async with asyncio.TaskGroup() as group:
        group.create_task(fixture.questions.ask("Which one?"))
        group.create_task(fixture.questions.ask_approval("terminal", "rm -r build", "it deletes"))
        question, approval = await fixture.events.get(), await fixture.events.get()
        assert isinstance(question, QuestionAsked)
        assert isinstance(approval, ApprovalAsked)
        assert fixture.questions.approvals == [approval]
        assert fixture.questions.answer(approval.id, "no")
        assert fixture.questions.approvals == []
        assert fixture.questions.answer(question.id, "the red one")


async def test_several_questions_are_distinguished() -> None:
    fixture = QuestionFixture()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fixture.questions.ask(f"question {number}")) for number in range(3)]
        ids = [await fixture.next_id() for _ in tasks]
        assert fixture.questions.waiting == ids
        for number in (2, 0, 1):
            assert fixture.questions.answer(ids[number], f"answer {number}")
    assert [task.result() for task in tasks] == ["answer 0", "answer 1", "answer 2"]


async def test_question_without_an_answer_in_time_returns_none() -> None:
    fixture = QuestionFixture(patience=0)
    assert await fixture.questions.ask("Anybody?") is None
    assert not fixture.questions.answer(await fixture.next_id(), "too late")
    assert fixture.questions.waiting == []


async def test_only_the_first_answer_counts() -> None:
    fixture = QuestionFixture()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fixture.questions.ask("Which one?"))
        number = await fixture.next_id()
        assert fixture.questions.answer(number, "first")
        assert not fixture.questions.answer(number, "second")
    assert asked.result() == "first"


async def test_an_unknown_question_cannot_be_answered() -> None:
    assert not QuestionFixture().questions.answer("nothing", "yes")


async def test_cancelled_turn_closes_its_question() -> None:
    fixture = QuestionFixture()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fixture.questions.ask("Which one?"))
        number = await fixture.next_id()
        asked.cancel()
    assert fixture.questions.waiting == []
    assert not fixture.questions.answer(number, "too late")
