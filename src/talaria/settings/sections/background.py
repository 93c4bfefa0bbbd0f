"""Settings of background work: delegation, scheduled jobs and the heartbeat."""

import re
from typing import Annotated, Any

from msgspec import Meta, Struct

_LIVE: dict[str, Any] = {"live": True}


class DelegationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of delegated tasks; 0 dollars or seconds mean no separate limit."""

    depth: Annotated[
        int,
        Meta(
            ge=0,
            le=8,
            description="How deeply tasks may be delegated: 0 means never, 1 means that delegated tasks "
            "can't delegate.",
            extra=_LIVE,
        ),
    ] = 2
    at_once: Annotated[
        int, Meta(ge=1, le=256, description="Maximum tasks of one call that run in parallel.", extra=_LIVE)
    ] = 4
    tasks: Annotated[int, Meta(ge=1, le=1000, description="Maximum tasks per call.", extra=_LIVE)] = 20
    background: Annotated[
        int,
        Meta(ge=1, le=1000, description="Maximum background calls per conversation.", extra=_LIVE),
    ] = 8
    model: Annotated[
        str,
        Meta(
            description="PROVIDER:MODEL for tasks that don't name one; empty means the conversation's model.",
            extra=_LIVE,
        ),
    ] = ""
    max_dollars: Annotated[
        float, Meta(ge=0, description="Maximum dollars per task; 0 means no separate limit.", extra=_LIVE)
    ] = 0.0
    max_seconds: Annotated[
        int, Meta(ge=0, description="Maximum seconds per task; 0 means no separate limit.", extra=_LIVE)
    ] = 3600


_HOURS = r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)"
_EVERY = r"(?:[1-9]\d{0,3}[mhd])?"


def are_hours(text: str) -> bool:
    """Return whether ``text`` is a range of times of day, for example ``8:00-22:00``."""
    return re.fullmatch(_HOURS, text) is not None


def is_interval(text: str) -> bool:
    """Return whether ``text`` is empty or a duration, for example ``30m``."""
    return re.fullmatch(_EVERY, text) is not None


class ScheduleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of all scheduled jobs."""

    enabled: Annotated[bool, Meta(description="Whether the gateway starts scheduled jobs.")] = True
    catch_up_hours: Annotated[
        float,
        Meta(ge=0, le=8_760, description="How late a missed run is still started.", extra=_LIVE),
    ] = 12.0
    job_dollars: Annotated[
        float,
        Meta(ge=0, description="Monthly budget of a job without its own; 0 means no cap.", extra=_LIVE),
    ] = 0.0
    script_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="Maximum run time of a job's script.", extra=_LIVE)
    ] = 300


class HeartbeatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Recurring check of `HEARTBEAT.md` and of pending work; free if there is neither."""

    every: Annotated[
        str,
        Meta(
            description="How often to check, for example 30m; empty means never.",
            extra={"live": True, "check": is_interval, "expected": "empty or a number with m, h or d, for example 30m"},
        ),
    ] = ""
    hours: Annotated[
        str,
        Meta(
            description="Time of day in which it may run, in your time zone.",
            extra={"live": True, "check": are_hours, "expected": "two times of day, for example 8:00-22:00"},
        ),
    ] = "8:00-22:00"
    target: Annotated[
        str,
        Meta(description="Where it reports: `home`, a network, or a chat, for example telegram:Family.", extra=_LIVE),
    ] = "home"
    model: Annotated[
        str, Meta(description="Model to use, as PROVIDER:NAME; empty means the default model.", extra=_LIVE)
    ] = ""
