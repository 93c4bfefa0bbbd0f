"""Automatic session reset: after a period of inactivity, at an hour of the day, or never."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.contracts.stores.sessions import Session
from talaria.contracts.values import SessionValue
from talaria.core.formatting import pluralize
from talaria.settings.sections.chats import ChatNetworkSettings

ResetReason = Literal["idle", "daily"]


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
    if not session.message_count or tx.inbox.unsettled(session.id):
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
