"""When a conversation begins anew by itself: after a pause, at an hour of the day, or never."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from msgspec import Struct

from talaria.core.wording import counted
from talaria.settings.chats import ChatNetwork

Reason = Literal["idle", "daily"]


class ResetPolicy(Struct, frozen=True):
    """The pause and the hour; ``None`` where it does not count."""

    idle: timedelta | None = None
    hour: int | None = None


def policy_of(network: ChatNetwork) -> ResetPolicy:
    """Return what the settings of a network say."""
    idle = timedelta(minutes=network.reset_idle_minutes)
    return ResetPolicy(
        idle if network.reset in {"idle", "both"} else None,
        network.reset_hour if network.reset in {"daily", "both"} else None,
    )


def reset_due(policy: ResetPolicy, last: datetime, now: datetime, zone: tzinfo | None) -> Reason | None:
    """Return why a conversation that was last spoken in at ``last`` begins anew; ``None`` where it goes on.

    The hour is one of ``zone``, or of the system where that is ``None``.
    """
    if policy.idle is not None and now - last >= policy.idle:
        return "idle"
    if policy.hour is not None and last < _latest(policy.hour, now, zone):
        return "daily"
    return None


def reset_words(reason: Reason, policy: ResetPolicy) -> str:
    """Return the sentence that tells a person of it."""
    match reason:
        case "idle":
            why = f"Nothing was said here for {_span(policy.idle or timedelta())}"
        case "daily":
            why = f"A new day has begun (at {policy.hour or 0}:00)"
    return f"{why}, so this is a new conversation. `/resume` goes back to the one before."


def _latest(hour: int, now: datetime, zone: tzinfo | None) -> datetime:
    """Return when it was that hour of the day last. An hour that the clocks skip falls to the moment they do."""
    wall = now.astimezone(zone).replace(hour=hour, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
    days = (_moment(wall - timedelta(days=back), zone) for back in (-1, 0, 1))
    return max(at for at in days if at <= now)


def _moment(wall: datetime, zone: tzinfo | None) -> datetime:
    return (wall.replace(tzinfo=zone) if zone else wall.astimezone()).astimezone(UTC)


def _span(idle: timedelta) -> str:
    minutes = int(idle.total_seconds()) // 60
    for size, unit in ((24 * 60, "day"), (60, "hour")):
        if minutes >= size and minutes % size == 0:
            return counted(minutes // size, unit)
    return counted(minutes, "minute")
