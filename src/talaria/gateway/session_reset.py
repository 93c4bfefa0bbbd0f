"""Automatic session reset, after inactivity or at an hour of the day, and the memory flush before it."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Binding, Session
from talaria.contracts.values import SessionValue
from talaria.core.errors import TalariaError
from talaria.core.formatting import pluralize
from talaria.core.ids import WorkerId
from talaria.core.messages import PROGRAM, Message, Text
from talaria.runtime.active_session import SessionOpener
from talaria.runtime.open_session import OpenRequest, ResumeSession, SurfaceInfo
from talaria.runtime.workers import claim_chat
from talaria.sessions.keys import build_key_prefix
from talaria.settings.sections.chats import ChatNetworkSettings

ResetReason = Literal["idle", "daily"]
_POLL_INTERVAL = 60.0
_BATCH_SIZE = 8
_TURN_SECONDS = 300.0
SOURCE = "farewell"
FLUSH_PROMPT = (
    "This message is automatic, not from a person. This conversation is over; the next message starts a new one that"
    " knows nothing about it. If anything here is worth remembering and not in your memory yet, save it now with the"
    " memory tool. Nobody reads your reply: answer with one word."
)

log = logging.getLogger(__name__)


class ResetPolicy(Struct, frozen=True):
    """Conditions for resetting the sessions of a network; ``None`` switches a condition off."""

    idle: timedelta | None = None
    hour: int | None = None


class _FlushedSession(Struct, frozen=True):
    """Record of why a session has ended in its chat; a later binding makes it void."""

    reason: ResetReason
    bound_at: datetime


FLUSHED = SessionValue("flushed", _FlushedSession)


def build_reset_policy(network: ChatNetworkSettings) -> ResetPolicy:
    """Return the policy in the settings of a network."""
    idle = timedelta(minutes=network.reset_idle_minutes)
    return ResetPolicy(
        idle if network.reset in {"idle", "both"} else None,
        network.reset_hour if network.reset in {"daily", "both"} else None,
    )


def find_due_reset(
    tx: Transaction, session: Session, binding: Binding, policy: ResetPolicy, now: datetime, zone: tzinfo | None
) -> ResetReason | None:
    """Return why a message that arrives now starts a new session; ``None`` if it continues the bound one.

    Sessions without messages and sessions with pending messages are never reset. A session whose memory was flushed has
    ended, even if the policy was changed since.
    """
    if not session.message_count or tx.inbox.list_unsettled(session.id):
        return None
    return read_flush_reason(tx, binding) or find_reset_reason(policy, find_last_activity(session, binding), now, zone)


def find_reset_reason(policy: ResetPolicy, last: datetime, now: datetime, zone: tzinfo | None) -> ResetReason | None:
    """Return why a session that was last active at ``last`` is reset; ``None`` if it is not.

    The policy's hour is in ``zone``, or in the system's time zone if that is ``None``.
    """
    if policy.idle is not None and now - last >= policy.idle:
        return "idle"
    if policy.hour is not None and last < _find_last_hour(policy.hour, now, zone):
        return "daily"
    return None


def find_last_activity(session: Session, binding: Binding) -> datetime:
    """Return when a session was last active in its chat; binding it to the chat counts."""
    return max(session.updated_at, binding.bound_at)


def format_reset_notice(reason: ResetReason, policy: ResetPolicy) -> str:
    """Return the notice that a chat gets about a reset."""
    match reason:
        case "idle":
            why = f"There was no message here for {_format_span(policy.idle or timedelta())}"
        case "daily":
            why = f"Conversations here start over every day at {policy.hour or 0}:00"
    return f"{why}, so this is a new conversation. `/resume` returns to the previous one."


def mark_flushed(tx: Transaction, binding: Binding, reason: ResetReason) -> None:
    """Record that the memory of a session is being flushed; the next message starts a new session."""
    FLUSHED.write(tx, binding.session_id, _FlushedSession(reason, binding.bound_at))


def read_flush_reason(tx: Transaction, binding: Binding) -> ResetReason | None:
    """Return why the memory of a session was flushed; ``None`` if it was not, or the session was rebound."""
    flushed = FLUSHED.get(tx, binding.session_id)
    return flushed.reason if flushed is not None and flushed.bound_at == binding.bound_at else None


def _find_last_hour(hour: int, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the last time it was that hour; one skipped by a clock change counts from the change."""
    wall = now.astimezone(zone).replace(hour=hour, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
    days = (_to_utc(wall - timedelta(days=back), zone) for back in (-1, 0, 1))
    return max(at for at in days if at <= now)


def _to_utc(wall: datetime, zone: tzinfo | None) -> datetime:
    return (wall.replace(tzinfo=zone) if zone else wall.astimezone()).astimezone(UTC)


def _format_span(idle: timedelta) -> str:
    minutes = int(idle.total_seconds()) // 60
    for size, unit in ((24 * 60, "day"), (60, "hour")):
        if minutes >= size and minutes % size == 0:
            return pluralize(minutes // size, unit)
    return pluralize(minutes, "minute")


class MemoryFlusher:
    """Worker that finds sessions due for a reset and runs their last turn.

    ``networks`` returns the current settings of the networks.
    """

    def __init__(
        self,
        opener: SessionOpener,
        worker: WorkerId,
        folder: Path,
        networks: Callable[[], dict[str, ChatNetworkSettings]],
        zone: Callable[[], tzinfo | None],
        jobs: asyncio.TaskGroup,
    ) -> None:
        self._opener = opener
        self._worker = worker
        self._folder = folder
        self._networks = networks
        self._zone = zone
        self._jobs = jobs

    async def serve(self) -> None:
        """Look for due sessions once a minute, until cancelled."""
        while True:
            try:
                await self.look(datetime.now(UTC))
            except TalariaError as error:
                log.warning("couldn't look for ended conversations: %s", error)
            await asyncio.sleep(_POLL_INTERVAL)

    async def look(self, now: datetime) -> int:
        """Flush the memory of a few sessions that are due, and return their number."""
        networks = {name: one for name, one in self._networks().items() if one.reset != "never"}
        if not networks:
            return 0
        ended = await self._opener.store.write(lambda tx: self._mark_ended(tx, networks, now))
        async with asyncio.TaskGroup() as group:
            for binding in ended:
                group.create_task(self._flush(binding))
        return len(ended)

    def _mark_ended(self, tx: Transaction, networks: dict[str, ChatNetworkSettings], now: datetime) -> list[Binding]:
        """Mark due sessions, a few at a time; the next message in their chats starts a new session."""
        found: list[Binding] = []
        bindings = (one for name in networks for one in tx.bindings.under(build_key_prefix(name)))
        for binding in bindings:
            reason = self._find_reason(tx, binding, networks[binding.address.platform], now)
            if reason and claim_chat(tx, binding.key, self._worker):
                mark_flushed(tx, binding, reason)
                found.append(binding)
            if len(found) == _BATCH_SIZE:
                break
        return found

    def _find_reason(
        self, tx: Transaction, binding: Binding, network: ChatNetworkSettings, now: datetime
    ) -> ResetReason | None:
        session = tx.sessions.get(binding.session_id)
        if session is None or not session.message_count or tx.inbox.list_unsettled(session.id):
            return None
        if read_flush_reason(tx, binding) is not None or tx.turns.find(session.id, running=True, limit=1):
            return None
        return find_reset_reason(build_reset_policy(network), find_last_activity(session, binding), now, self._zone())

    async def _flush(self, binding: Binding) -> None:
        """Run one more turn in a session without showing it in the chat."""
        request = OpenRequest(
            surface=SurfaceInfo(source=binding.address.platform, folder=self._folder, attended=False),
            session=ResumeSession(binding.session_id),
            titled=False,
        )
        message = Message(role="user", parts=(Text(FLUSH_PROMPT),), at=datetime.now(UTC), author=PROGRAM)
        try:
            async with asyncio.timeout(_TURN_SECONDS), AsyncExitStack() as stack:
                chat = await self._opener.open_session(request, stack, self._jobs)
                await chat.conversation.say(
                    message, source=SOURCE, external_id=f"{binding.session_id}:{binding.bound_at}"
                )
        except (TalariaError, TimeoutError) as error:
            log.warning("session %s: couldn't save memories: %s", binding.session_id, error)
