"""Execution of delegated tasks in child sessions, with results in order, checked against their JSON Schema."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from talaria.contracts.delegation import ChildState, ChildTask, DelegatedTask
from talaria.contracts.store import Store, Transaction
from talaria.core.aio import first_error, retry_write
from talaria.core.errors import NotFound, Refused, StoreError, TalariaError
from talaria.core.events import StoreBlocked, ToolCalled, ToolProgressed, TurnEvent
from talaria.core.ids import SessionId
from talaria.runtime.active_session import SessionOpener, open_and_run_pending
from talaria.runtime.delegation.task_store import (
    Delegation,
    begin_child,
    read_delegation,
    read_last_turn,
    send_to_child,
    settle_child,
)
from talaria.runtime.open_session import OpenRequest
from talaria.runtime.turn_environment import TurnSubscriber
from talaria.runtime.workers import is_leased, session_lease_name

if TYPE_CHECKING:  # loaded with the first schema: 11 ms and 5 MB
    from jsonschema_rs import Draft202012Validator

_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_MAX_MESSAGE = 300
T = TypeVar("T")
_POLL_SECONDS = 0.5
_MAX_REFUSALS = 3  # refusals while no process holds the session's lease
_SCHEMA_PROMPT = "\n\nAnswer only with JSON that matches this schema:\n{}"
_REPAIR_PROMPT = "That answer doesn't match: {}. Answer again, only with JSON that matches the schema."
_SCHEMA_FAILURE = "The answer doesn't match the schema, even after a second try: {}.\n{}"
RequestBuilder = Callable[[Delegation, int, SessionId], OpenRequest]
Progress = Callable[[str], None]


class TaskRunner:
    """Runner of delegated tasks in child sessions.

    ``build_request`` describes how a child session is opened, ``end`` ends what it has started. At most ``at_once``
    children run at the same time. Each child is settled in the store when it is done, so that it is not repeated after
    a crash. With ``on_store_wait``, failed writes are retried, and it is called when that takes a while.
    """

    def __init__(
        self,
        opener: SessionOpener,
        jobs: asyncio.TaskGroup,
        build_request: RequestBuilder,
        *,
        at_once: int,
        end: Callable[[SessionId], object],
        progress: Progress = lambda text: None,
        on_store_wait: Callable[[], None] | None = None,
    ) -> None:
        self._opener = opener
        self._jobs = jobs
        self._build_request = build_request
        self._slots = asyncio.Semaphore(at_once)
        self._end = end
        self._progress = progress
        self._on_store_wait = on_store_wait

    @property
    def _store(self) -> Store:
        return self._opener.store

    async def run_children(self, delegation: Delegation) -> tuple[ChildTask, ...]:
        """Run the open children and return all of them in order; cancelling interrupts them for later."""
        numbers = [number for number, child in enumerate(delegation.children) if child.state == "open"]
        try:
            async with asyncio.TaskGroup() as group:
                for number in numbers:
                    group.create_task(self._run_child(delegation, number))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        known = await self._store.read(lambda tx: read_delegation(tx, delegation.key))
        return known.children if known else delegation.children

    async def _run_child(self, delegation: Delegation, number: int) -> None:
        """Run one child as soon as a slot is free, and settle it."""
        task, key = delegation.children[number].task, delegation.key
        async with self._slots:
            try:
                session_id = await self._write(lambda tx: begin_child(tx, key, number, _build_child_prompt(task)))
            except NotFound:
                session_id = None
            if session_id is None:
                return
            state, text = await self._get_answer(delegation, number, session_id)
            await self._write(lambda tx: settle_child(tx, key, number, state, text))
            self._end(session_id)
        self._progress(f"child {number + 1}: {state}")

    async def _get_answer(self, delegation: Delegation, number: int, session_id: SessionId) -> tuple[ChildState, str]:
        task = delegation.children[number].task
        request = self._build_request(delegation, number, session_id)
        on_event = partial(self._on_child_event, number + 1)
        try:
            state, text = await self._run_session(session_id, request, on_event)
            if state != "done" or task.schema is None:
                return state, text
            state, text, problem = _validate_answer(text, task)
            if problem:
                repair = _REPAIR_PROMPT.format(problem)
                await self._write(lambda tx: send_to_child(tx, session_id, "repair", repair))
                state, text = await self._run_session(session_id, request, on_event)
                if state == "done":
                    state, text, _ = _validate_answer(text, task)
        except StoreError:
            raise
        except TalariaError as error:
            return "failed", error.public if delegation.owner else str(error)
        return state, text

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        if self._on_store_wait is None:
            return await self._store.write(work)
        return await retry_write(lambda: self._store.write(work), self._on_store_wait)

    def _on_child_event(self, number: int, event: TurnEvent) -> None:
        """Show the steps of a child as progress of the call that delegated it."""
        match event:
            case ToolCalled(summary=summary):
                self._progress(f"child {number}: {summary}")
            case ToolProgressed(text=text, step=True):
                self._progress(f"child {number}: {text}")
            case StoreBlocked() if self._on_store_wait is not None:
                self._on_store_wait()
            case _:
                pass

    async def _run_session(
        self, session_id: SessionId, request: OpenRequest, on_event: TurnSubscriber
    ) -> tuple[ChildState, str]:
        """Run the session until its last turn ends, and return its result.

        Waits while another process runs the session. Raises `Refused` after several refusals that no lease explains.
        """
        refused = 0
        while refused < _MAX_REFUSALS:
            try:
                await open_and_run_pending(self._opener, request, self._jobs, on_event)
            except Refused:
                pass
            else:
                state, text = await self._store.read(lambda tx: read_last_turn(tx, session_id))
                if state != "open":
                    return state, text
            if not await self._store.read(lambda tx: is_leased(tx, session_lease_name(session_id))):
                refused += 1
            await asyncio.sleep(_POLL_SECONDS)
        raise Refused("The task couldn't be run.")


def find_schema_problem(schema: Any) -> str:
    """Return what is wrong with a schema, as the end of a sentence; empty for a usable one."""
    try:
        _compile(schema)
    except ValueError as error:
        path = _format_path("schema", getattr(error, "instance_path", ()))
        return f"{path}: {_take_first_line(error)}"
    return ""


def parse_answer(text: str) -> Any:
    """Return the JSON in an answer, also inside a fence or other text; raises `ValueError` if there is none."""
    for candidate in _iterate_candidates(text):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
    raise ValueError("the answer is not JSON")


def find_mismatch(value: Any, schema: Any) -> str:
    """Return the first mismatch of a value with a usable schema, with its path; empty if it matches."""
    for error in _compile(schema).iter_errors(value):
        return f"{_format_path('answer', error.instance_path)}: {_take_first_line(error)}"
    return ""


def _iterate_candidates(text: str) -> Iterator[str]:
    yield text
    yield from _FENCED.findall(text)
    for opening, closing in ("{}", "[]"):
        first, last = text.find(opening), text.rfind(closing)
        if 0 <= first < last:
            yield text[first : last + 1]


def _compile(schema: Any) -> "Draft202012Validator":
    """Return the validator of a schema, or raise `ValueError`.

    The schema comes from a model: references to files and servers are refused, and patterns match in linear time.
    """
    from jsonschema_rs import Draft202012Validator, RegexOptions  # noqa: PLC0415 (loaded with the first schema)

    return Draft202012Validator(schema, offline=True, pattern_options=RegexOptions())


def _format_path(root: str, path: Sequence[str | int]) -> str:
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _take_first_line(error: Exception) -> str:
    message = str(getattr(error, "message", error)).partition("\n")[0]
    return message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"


def _build_child_prompt(task: DelegatedTask) -> str:
    """Return the prompt of a child, with its schema if it has one."""
    if task.schema is None:
        return task.goal
    return task.goal + _SCHEMA_PROMPT.format(msgspec.json.encode(task.schema).decode())


def _validate_answer(text: str, task: DelegatedTask) -> tuple[ChildState, str, str]:
    """Return the state, the bare JSON or failure text, and the problem, if any, of an answer."""
    try:
        value = parse_answer(text)
        problem = find_mismatch(value, task.schema)
    except ValueError as error:
        problem = str(error)
    if problem:
        return "failed", _SCHEMA_FAILURE.format(problem, text), problem
    return "done", msgspec.json.encode(value).decode(), ""
