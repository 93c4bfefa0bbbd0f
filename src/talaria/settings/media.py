"""Settings of what people send besides words."""

from typing import Annotated, Any

from msgspec import Meta, Struct

_LIVE: dict[str, Any] = {"live": True}


class Media(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of messages in chats, which are fetched before the turn of their message begins."""

    fetch_seconds: Annotated[
        float, Meta(ge=1, le=3600, description="How long one file may take to be fetched.", extra=_LIVE)
    ] = 60.0
    file_megabytes: Annotated[
        float, Meta(gt=0, le=2000, description="How large a file may be that is fetched.", extra=_LIVE)
    ] = 50.0
