"""A conversation in a plain terminal or a pipe: text out as it comes, everything else beside it."""

import argparse
import asyncio
import mimetypes
import signal
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from talaria.cli.services import Services
from talaria.cli.showing import EventLines, Show, Transcribed
from talaria.cli.terminal import Terminal
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
from talaria.core.messages import Image, Message, Part, Text
from talaria.sessions.chat import Chat, ChatWish
from talaria.sessions.company import first_error

SOURCE = "cli"
ANSWERED, FAILED, OUT_OF_BUDGET, STOPPED = 0, 1, 3, 130
_APPROVALS = {"o": "once", "y": "once", "s": "session", "a": "always"}
_SURFACE = "You are in a plain terminal: answer in text that reads well without rendering."


def talk(arguments: argparse.Namespace, services: Services, stdin: TextIO) -> int:
    """Ask once, or line by line where a person sits there, and return the exit code."""
    piped = "" if stdin.isatty() else stdin.read()
    question = "\n\n".join(part for part in (arguments.query or "", piped.strip()) if part)
    if not question and not stdin.isatty():
        raise Refused("There is nothing to answer: give a question with -q, or on the standard input.")
    try:
        return asyncio.run(_talk(arguments, services, question, stdin))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _talk(arguments: argparse.Namespace, services: Services, question: str, stdin: TextIO) -> int:
    wish = ChatWish(
        source=SOURCE,
        folder=Path.cwd(),
        resume=arguments.resume,
        latest=arguments.latest,
        model=arguments.model,
        surface=_SURFACE,
        titled=not question,
        attended=stdin.isatty(),
    )
    show: Show = EventLines(services.terminal) if arguments.json else Transcribed(services.terminal)
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        desk = _Listener(services.terminal, stdin, show, jobs)
        house = services.open_house(stack)
        desk.chat = chat = await house.open_chat(wish, desk.event, stack, jobs)
        show.opened(chat, house.notes)
        pictures = [_picture(file) for file in arguments.image]
        if question:
            return _code(await _ask(chat, [Text(question), *pictures]))
        return await _line_by_line(chat, desk, pictures)
    raise AssertionError("unreachable")


class _Listener:
    """Hears what happens and, where somebody sits at the keyboard, asks them what a turn wants to know."""

    def __init__(self, terminal: Terminal, stdin: TextIO, show: Show, jobs: asyncio.TaskGroup) -> None:
        self._terminal = terminal
        self._stdin = stdin
        self._show = show
        self._jobs = jobs
        self.chat: Chat | None = None

    def event(self, event: TurnEvent) -> None:
        self._show.event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked) and self._stdin.isatty():
            self._jobs.create_task(self._answer(event))

    async def line(self, prompt: str) -> str | None:
        """Return what is typed, or ``None`` at the end of it."""
        self._terminal.prompt(prompt)
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._stdin, readable.set)  # not in a thread: that could not be interrupted
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._stdin)
        typed = self._stdin.readline()
        return typed.strip() if typed else None

    async def _answer(self, event: ApprovalAsked | QuestionAsked) -> None:
        if isinstance(event, ApprovalAsked):
            typed = await self.line("Allow it? [o]nce, for this [s]ession, [a]lways, [N]o: ")
            answer = _APPROVALS.get((typed or "n")[:1].lower(), "no")
        else:
            answer = _chosen(event.choices, await self.line("Your answer: ") or "")
        if self.chat is not None:
            self.chat.questions.answer(event.id, answer)


async def _line_by_line(chat: Chat, listener: _Listener, pictures: list[Image]) -> int:
    while (line := await listener.line("> ")) is not None:
        if line:
            await _ask(chat, [Text(line), *pictures])
            pictures = []
    return ANSWERED


async def _ask(chat: Chat, parts: list[Part]) -> TurnEnd | None:
    message = Message(role="user", parts=tuple(parts), at=datetime.now(UTC))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, chat.conversation.stop)
    try:
        return await chat.conversation.say(message, source=SOURCE, external_id=new_id())
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _chosen(choices: tuple[str, ...], typed: str) -> str:
    """Return the choice that a number stands for, or the words themselves."""
    if typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1]
    return typed


def _picture(file: Path) -> Image:
    if not file.is_file():
        raise Refused(f"There is no picture {file}.")
    kind, _ = mimetypes.guess_type(file.name)
    if kind is None or not kind.startswith("image/"):
        raise Refused(f"{file} is not a picture that a model could see.")
    return Image(str(file.absolute()), kind)


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
