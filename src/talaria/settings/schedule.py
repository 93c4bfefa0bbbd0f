"""Settings of what nobody asks for: scheduled jobs and the heartbeat."""

import re
from typing import Annotated, Any

from msgspec import Meta, Struct

_LIVE: dict[str, Any] = {"live": True}
_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")
_EVERY = re.compile(r"(?:[1-9]\d{0,3}[mhd])?")


def are_hours(text: str) -> bool:
    """Whether ``text`` is from one time of day to another, as in ``8:00-22:00``."""
    return _HOURS.fullmatch(text) is not None


def is_interval(text: str) -> bool:
    """Whether ``text`` is empty or a time such as ``30m``."""
    return _EVERY.fullmatch(text) is not None


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts for every scheduled job."""

    enabled: Annotated[bool, Meta(description="Whether a gateway starts scheduled jobs.")] = True
    catch_up_hours: Annotated[
        float,
        Meta(ge=0, le=8_760, description="How late a run that was missed is still made up for.", extra=_LIVE),
    ] = 12.0
    job_dollars: Annotated[
        float,
        Meta(
            ge=0, description="What a job may spend in a month unless it says so itself; 0 means no cap.", extra=_LIVE
        ),
    ] = 0.0
    script_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="How long the script of a job may take.", extra=_LIVE)
    ] = 300


class Heartbeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A regular look at `HEARTBEAT.md` in the profile and at what is pending; without either it costs nothing."""

    every: Annotated[
        str,
        Meta(
            description="How often to look, such as 30m; empty means never.",
            extra={"live": True, "check": is_interval, "expected": "empty or a number with m, h or d, such as 30m"},
        ),
    ] = ""
    hours: Annotated[
        str,
        Meta(
            description="Between which times of the day, in your time zone.",
            extra={"live": True, "check": are_hours, "expected": "two times of a day, such as 8:00-22:00"},
        ),
    ] = "8:00-22:00"
    target: Annotated[
        str, Meta(description="Where it reports: `home`, a network, or a chat such as telegram:Family.", extra=_LIVE)
    ] = "home"
    model: Annotated[
        str, Meta(description="The model that is asked, as PROVIDER:NAME; empty means the usual one.", extra=_LIVE)
    ] = ""
