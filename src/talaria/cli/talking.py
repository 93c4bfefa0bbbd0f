"""One question and its answer: text out as it comes, everything else beside it."""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from msgspec import structs

from talaria.cli.approval import answer_in_terminal
from talaria.cli.line_reader import LineReader
from talaria.cli.mentions import picture
from talaria.cli.services import Services
from talaria.cli.showing import EventLines, Show, Transcribed
from talaria.cli.wishes import SOURCE, wish_of
from talaria.core.events import (
    ApprovalAsked,
    QuestionAsked,
    TurnAnswered,
    TurnEnd,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
)
from talaria.core.ids import new_id
from talaria.core.messages import Message, Part, Text
from talaria.sessions.chat import Chat
from talaria.sessions.company import first_error

ANSWERED, FAILED, OUT_OF_BUDGET, STOPPED = 0, 1, 3, 130
_SURFACE = "You are in a plain terminal: answer in text that reads well without rendering."


def ask_once(arguments: argparse.Namespace, services: Services, question: str) -> int:
    """Print the answer to a question and return the exit code."""
    try:
        return asyncio.run(_ask_once(arguments, services, question))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _ask_once(arguments: argparse.Namespace, services: Services, question: str) -> int:
    wish = structs.replace(
        wish_of(arguments, _SURFACE),
        titled=False,
        lasting=False,
        watchable=False,
        attended=services.terminal.interactive,
    )
    show: Show = EventLines(services.terminal) if arguments.json else Transcribed(services.terminal, commands=False)
    parts: list[Part] = [Text(question), *map(picture, arguments.image)]
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        house = services.load_house()(stack)
        listener = _Listener(show, LineReader(services.terminal) if wish.attended else None, jobs)
        listener.chat = chat = await house.open_chat(wish, listener.event, stack, jobs)
        show.opened(chat, house.notes)
        return _code(await _ask(chat, parts))
    raise AssertionError("unreachable")


class _Listener:
    """Shows what happens and, where somebody sits at the keyboard, asks them what the turn wants to know."""

    def __init__(self, show: Show, keyboard: LineReader | None, jobs: asyncio.TaskGroup) -> None:
        self._show = show
        self._keyboard = keyboard
        self._jobs = jobs
        self.chat: Chat | None = None

    def event(self, event: TurnEvent) -> None:
        self._show.event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked) and self._keyboard and self.chat:
            self._jobs.create_task(answer_in_terminal(event, self.chat.questions, self._keyboard))


async def _ask(chat: Chat, parts: list[Part]) -> TurnEnd | None:
    message = Message(role="user", parts=tuple(parts), at=datetime.now(UTC))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, chat.conversation.stop)
    try:
        return await chat.conversation.say(message, source=SOURCE, external_id=new_id())
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _code(end: TurnEnd | None) -> int:
    match end:
        case TurnAnswered() | None:
            return ANSWERED
        case TurnFailed():
            return FAILED
        case TurnOutOfBudget():
            return OUT_OF_BUDGET
        case _:
            return STOPPED
