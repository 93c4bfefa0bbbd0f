"""Settings of tasks that a conversation hands on to others of its own."""

from typing import Annotated, Any

from msgspec import Meta, Struct

_LIVE: dict[str, Any] = {"live": True}


class Delegation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far tasks are handed on, and what that may take; 0 dollars or seconds mean no limit of their own."""

    depth: Annotated[
        int,
        Meta(ge=0, le=8, description="How often a task may be handed on: 0 never, 1 not any further.", extra=_LIVE),
    ] = 2
    at_once: Annotated[
        int, Meta(ge=1, le=256, description="How many tasks of one call are worked on at once.", extra=_LIVE)
    ] = 4
    tasks: Annotated[int, Meta(ge=1, le=1000, description="The most tasks of one call.", extra=_LIVE)] = 20
    background: Annotated[
        int,
        Meta(ge=1, le=1000, description="How many calls may go on in the background of a conversation.", extra=_LIVE),
    ] = 8
    model: Annotated[
        str,
        Meta(description="PROVIDER:MODEL for tasks that name none; empty means that of the conversation.", extra=_LIVE),
    ] = ""
    max_dollars: Annotated[float, Meta(ge=0, description="The most dollars for one task.", extra=_LIVE)] = 0.0
    max_seconds: Annotated[int, Meta(ge=0, description="The most seconds for one task.", extra=_LIVE)] = 3600
