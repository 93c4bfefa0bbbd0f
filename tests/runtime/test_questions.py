"""Questions that somebody answers, or nobody does."""

import asyncio
from collections.abc import Sequence

from talaria.core.events import ApprovalAsked, QuestionAsked, TurnEvent
from talaria.runtime.questions import PLAN, Questions, answer


class Room:
    """Open questions, and what was heard of them."""

    def __init__(self, patience: float = 60) -> None:
        self.heard: asyncio.Queue[TurnEvent] = asyncio.Queue()
        self.questions = Questions(self.heard.put_nowait, patience=lambda: patience)

    async def next_id(self) -> str:
        event = await self.heard.get()
        assert isinstance(event, QuestionAsked | ApprovalAsked)
        return event.id


async def test_an_answer_reaches_the_asking_call() -> None:
    room = Room()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(room.questions.ask("Which one?", ("red", "blue")))
        event = await room.heard.get()
        assert isinstance(event, QuestionAsked)
        assert (event.question, event.choices) == ("Which one?", ("red", "blue"))
        assert room.questions.waiting == [event.id]
        assert room.questions.answer(event.id, "blue")
    assert asked.result() == "blue"
    assert room.questions.waiting == []


async def test_an_approval_says_what_it_is_about() -> None:
    room = Room()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(room.questions.ask_approval("terminal", "rm -r build", "it deletes"))
        event = await room.heard.get()
        assert event == ApprovalAsked(room.questions.waiting[0], "terminal", "rm -r build", "it deletes")
        room.questions.answer(event.id, "once")
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


async def test_a_plan_can_only_be_carried_out_or_not() -> None:
    room, chooser = Room(), Chooser()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(room.questions.ask_approval(PLAN, "First step: terminal: make", "It wants to start."))
        event = await room.heard.get()
        assert isinstance(event, ApprovalAsked)
        await answer(event, room.questions, chooser)
    assert asked.result() == "once"
    assert list(chooser.offered) == ["Carry out the plan", "Keep planning"]


async def test_approvals_are_distinguished_from_questions() -> None:
    room = Room()
    async with asyncio.TaskGroup() as group:
        group.create_task(room.questions.ask("Which one?"))
        group.create_task(room.questions.ask_approval("terminal", "rm -r build", "it deletes"))
        question, approval = await room.heard.get(), await room.heard.get()
        assert isinstance(question, QuestionAsked)
        assert isinstance(approval, ApprovalAsked)
        assert room.questions.approvals == [approval]
        assert room.questions.answer(approval.id, "no")
        assert room.questions.approvals == []
        assert room.questions.answer(question.id, "the red one")


async def test_several_questions_are_distinguished() -> None:
    room = Room()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(room.questions.ask(f"question {number}")) for number in range(3)]
        ids = [await room.next_id() for _ in tasks]
        assert room.questions.waiting == ids
        for number in (2, 0, 1):
            assert room.questions.answer(ids[number], f"answer {number}")
    assert [task.result() for task in tasks] == ["answer 0", "answer 1", "answer 2"]


async def test_nobody_who_answers_in_time_is_no_answer() -> None:
    room = Room(patience=0)
    assert await room.questions.ask("Anybody?") is None
    assert not room.questions.answer(await room.next_id(), "too late")
    assert room.questions.waiting == []


async def test_only_the_first_answer_counts() -> None:
    room = Room()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(room.questions.ask("Which one?"))
        number = await room.next_id()
        assert room.questions.answer(number, "first")
        assert not room.questions.answer(number, "second")
    assert asked.result() == "first"


async def test_an_unknown_question_cannot_be_answered() -> None:
    assert not Room().questions.answer("nothing", "yes")


async def test_a_question_dies_with_its_turn() -> None:
    room = Room()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(room.questions.ask("Which one?"))
        number = await room.next_id()
        asked.cancel()
    assert room.questions.waiting == []
    assert not room.questions.answer(number, "too late")
