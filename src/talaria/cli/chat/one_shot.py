"""One-shot question: the answer is streamed to stdout, everything else goes to stderr."""

import argparse
import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from talaria.agent.context_window import estimate_tokens
from talaria.cli.chat.event_printer import EventPrinter, JsonPrinter, TextPrinter
from talaria.cli.chat.options import SOURCE, build_open_request
from talaria.core.aio import first_error
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
from talaria.runtime.open_session import OpenSession

if TYPE_CHECKING:  # not needed to answer
    from talaria.cli.chat.line_reader import LineReader
    from talaria.cli.services import Services
    from talaria.cli.terminal import Terminal
    from talaria.commands.application import Application

ANSWERED, FAILED, OUT_OF_BUDGET, STOPPED = 0, 1, 3, 130
_MAX_CONTEXT_SHARE = 0.8  # the rest is for instructions, tools and the reply
_TOO_LONG = (
    "The input is about {tokens:,} tokens, but {model} takes only {limit:,} in total. Save it to "
    "a file and give the path instead: the agent reads the parts it needs."
)
_SURFACE = "You are in a plain terminal: answer in text that reads well without rendering."


def ask_once(arguments: argparse.Namespace, services: "Services", typed: str, piped: str) -> int:
    """Print the answer to a question and return the exit code.

    ``typed`` may mention files with ``@``; ``piped`` is sent unchanged.
    """
    question = "\n\n".join(part for part in (typed, piped) if part)
    parts = [Text(question), *_load_attachments(typed, arguments.image)]
    try:
        return asyncio.run(_ask_once(arguments, services, parts))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


def _load_attachments(typed: str, images: Sequence[Path]) -> list[Part]:
    if "@" not in typed and not images:
        return []
    from talaria.core.mentions import build_message_parts, open_image  # noqa: PLC0415 (loaded for attachments)

    return [*build_message_parts(typed, Path.cwd())[1:], *map(open_image, images)]


async def _ask_once(arguments: argparse.Namespace, services: "Services", parts: list[Part]) -> int:
    request = build_open_request(arguments, _SURFACE)
    attended = services.terminal.interactive
    surface = structs.replace(request.surface, lasting=False, watchable=False, attended=attended)
    request = structs.replace(request, surface=surface, titled=False)
    printer: EventPrinter = (
        JsonPrinter(services.terminal) if arguments.json else TextPrinter(services.terminal, commands=False)
    )
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        application = services.load_application()(stack)
        chat = await application.open_session(request, stack, jobs)
        listener = _Listener(chat, printer, services.terminal if attended else None, jobs)
        chat.events.subscribe(listener.on_event)
        if tokens := _estimate_if_too_long(parts, chat):
            await _discard_new(application, chat, arguments)
            raise Refused(_TOO_LONG.format(tokens=tokens, model=chat.model, limit=chat.info.context_limit))
        printer.print_opening(chat, application.notes)
        end = await _ask(chat, parts)
        if listener.error is not None:
            raise listener.error
        return _get_exit_code(end)
    raise AssertionError("unreachable")


def _estimate_if_too_long(parts: list[Part], chat: OpenSession) -> int:
    """Return the estimated tokens of a question that is too long to be answered, otherwise 0."""
    tokens = estimate_tokens([Message(role="user", parts=tuple(parts), at=datetime.now(UTC))])
    return tokens if tokens > chat.info.context_limit * _MAX_CONTEXT_SHARE else 0


async def _discard_new(application: "Application", chat: OpenSession, arguments: argparse.Namespace) -> None:
    """Delete an empty session, unless it existed before."""
    if not (arguments.resume or arguments.latest):
        await application.store.write(lambda tx: tx.sessions.delete(chat.conversation.session_id))


class _Listener:
    """Printer of a session's events that also puts its questions to the user, if there is one.

    If output fails the turn is stopped; ``error`` has the reason.
    """

    def __init__(
        self, chat: OpenSession, printer: EventPrinter, terminal: "Terminal | None", jobs: asyncio.TaskGroup
    ) -> None:
        self._chat = chat
        self._printer = printer
        self._terminal = terminal
        self._keyboard: LineReader | None = None
        self._jobs = jobs
        self.error: OSError | None = None

    def on_event(self, event: TurnEvent) -> None:
        if self.error is not None:
            return
        try:
            self._printer.print_event(event)
        except OSError as error:  # for example the reader of a pipe has exited
            self.error = error
            self._chat.conversation.stop()
        if isinstance(event, ApprovalAsked | QuestionAsked) and self._terminal:
            self._put_question(event, self._terminal)

    def _put_question(self, event: ApprovalAsked | QuestionAsked, terminal: "Terminal") -> None:
        from talaria.cli.chat.approval import answer_in_terminal  # noqa: PLC0415 (loaded with the first question)
        from talaria.cli.chat.line_reader import LineReader  # noqa: PLC0415 (loaded with the first question)

        self._keyboard = self._keyboard or LineReader(terminal)
        self._jobs.create_task(answer_in_terminal(event, self._chat.questions, self._keyboard))


async def _ask(chat: OpenSession, parts: list[Part]) -> TurnEnd | None:
    message = Message(role="user", parts=tuple(parts), at=datetime.now(UTC))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, chat.conversation.stop)
    try:
        return await chat.conversation.say(message, source=SOURCE, external_id=new_id())
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _get_exit_code(end: TurnEnd | None) -> int:
    match end:
        case TurnAnswered() | None:
            return ANSWERED
        case TurnFailed():
            return FAILED
        case TurnOutOfBudget():
            return OUT_OF_BUDGET
        case _:
            return STOPPED
