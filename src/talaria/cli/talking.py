"""One question and its answer: the text on stdout as it comes, everything else on stderr."""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from talaria.agent.window import estimate
from talaria.cli.approval import answer_in_terminal
from talaria.cli.line_reader import LineReader
from talaria.cli.mentions import parts_of, picture
from talaria.cli.services import Services
from talaria.cli.showing import EventLines, Show, Transcribed
from talaria.cli.wishes import SOURCE, wish_of
from talaria.commands.house import House
from talaria.core.errors import Refused
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
_MOST_OF_CONTEXT = 0.8  # the rest is for instructions, tools and the reply
_TOO_LONG = (
    "The input has about {tokens:,} tokens, but {model} takes {limit:,} in all. Save it to a file and give the path"
    " instead: the agent reads the parts it needs."
)
_SURFACE = "You are in a plain terminal: answer in text that reads well without rendering."


def ask_once(arguments: argparse.Namespace, services: Services, typed: str, piped: str) -> int:
    """Print the answer to a question and return the exit code.

    ``typed`` may mention files with ``@``, ``piped`` is text that is sent as it is.
    """
    question = "\n\n".join(part for part in (typed, piped) if part)
    mentioned = parts_of(typed, Path.cwd())[1:] if "@" in typed else []
    parts = [Text(question), *mentioned, *map(picture, arguments.image)]
    try:
        return asyncio.run(_ask_once(arguments, services, parts))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _ask_once(arguments: argparse.Namespace, services: Services, parts: list[Part]) -> int:
    wish = structs.replace(
        wish_of(arguments, _SURFACE),
        titled=False,
        lasting=False,
        watchable=False,
        attended=services.terminal.interactive,
    )
    show: Show = EventLines(services.terminal) if arguments.json else Transcribed(services.terminal, commands=False)
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        house = services.load_house()(stack)
        listener = _Listener(show, LineReader(services.terminal) if wish.attended else None, jobs)
        listener.chat = chat = await house.open_chat(wish, listener.event, stack, jobs)
        if tokens := _too_many_tokens(parts, chat):
            await _discard_new(house, chat, arguments)
            raise Refused(_TOO_LONG.format(tokens=tokens, model=chat.model, limit=chat.info.context_limit))
        show.opened(chat, house.notes)
        return _code(await _ask(chat, parts))
    raise AssertionError("unreachable")


def _too_many_tokens(parts: list[Part], chat: Chat) -> int:
    """Return about how many tokens a question has if that leaves the model no room for an answer, else zero."""
    tokens = estimate([Message(role="user", parts=tuple(parts), at=datetime.now(UTC))])
    return tokens if tokens > chat.info.context_limit * _MOST_OF_CONTEXT else 0


async def _discard_new(house: House, chat: Chat, arguments: argparse.Namespace) -> None:
    """Remove a session in which nothing was said, unless it was there before."""
    if not (arguments.resume or arguments.latest):
        await house.store.write(lambda tx: tx.sessions.delete(chat.conversation.session_id))


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
