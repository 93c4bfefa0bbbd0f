"""Speak to a conversation that is worked on elsewhere: say something in it, answer what its turn asks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from talaria.contracts.store import Store, Transaction
from talaria.core.events import ApprovalAsked
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message
from talaria.sessions.lane import arrival
from talaria.sessions.live_events import QuestionClosed, Seen
from talaria.sessions.live_words import LIVE, Answer, Nudge, speak, speak_to
from talaria.sessions.turn_log import STEERING


async def say_there(
    store: Store, session_id: SessionId, message: Message, *, source: str, sender: str, steering: bool = False
) -> bool:
    """Say something in a conversation; return whether a turn is running, which it may join if ``steering``.

    Its reply goes to the place of the conversation, and whoever is at work there answers it.
    """
    came = arrival(session_id, source, new_id(), message, kind=STEERING if steering else "message", sender=sender)

    def work(tx: Transaction) -> bool:
        tx.inbox.add(came)
        return speak(tx, session_id, Nudge(steered=steering))

    running = await store.write(work)
    await store.hint(LIVE)
    return running


class DistantAnswers:
    """Implements `Answers`; ``start`` begins what takes an answer there."""

    def __init__(
        self, store: Store, session_id: SessionId, start: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._start = start
        self._open: dict[str, asyncio.Event] = {}
        self._asked: dict[str, ApprovalAsked] = {}
        self._over = False

    @property
    def approvals(self) -> list[ApprovalAsked]:
        """What waits for somebody to allow it, oldest first."""
        return list(self._asked.values())

    def note(self, event: Seen) -> None:
        """Take note of what the turn asks, and of what is open no more."""
        if isinstance(event, ApprovalAsked):
            self._asked[event.id] = event
        elif isinstance(event, QuestionClosed):
            self._asked.pop(event.id, None)
            self._open.setdefault(event.id, asyncio.Event()).set()

    def answer(self, question_id: str, text: str) -> bool:
        """Send the answer there; somebody else may have been quicker."""
        self._asked.pop(question_id, None)
        self._start(self._send(Answer(question_id, text)))
        return True

    async def closed(self, question_id: str) -> None:
        """Wait until it is told that a question is open no more."""
        if not self._over:
            await self._open.setdefault(question_id, asyncio.Event()).wait()

    def close_all(self) -> None:
        """Take note that the turn is over, or is asked about elsewhere."""
        self._over = True
        self._asked.clear()
        for event in self._open.values():
            event.set()

    async def _send(self, answer: Answer) -> None:
        await speak_to(self._store, self._session_id, answer)
