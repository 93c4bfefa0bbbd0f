"""Settings of the agent's memory."""

from typing import Annotated

from msgspec import Meta, Struct


class MemorySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory of the agent; all of it is part of every new conversation."""

    notes_limit: Annotated[
        int, Meta(ge=200, le=100_000, description="Most characters of the agent's notes, for each person or group.")
    ] = 2_200
    person_limit: Annotated[
        int, Meta(ge=200, le=100_000, description="Most characters of what it knows about a person.")
    ] = 1_375
    provider: Annotated[
        str, Meta(description="Where entries are stored: files, or the name of an installed provider.")
    ] = "files"
    options: Annotated[dict[str, str], Meta(description="Options of an installed provider.")] = {}
