"""Reactions: list those of an event, and remove ours."""

from urllib.parse import quote

import msgspec
import nio
from msgspec import Struct

from talaria.core.errors import Unreachable
from talaria.platforms.matrix.client import ask, fetch_bytes
from talaria.platforms.matrix.events import RoomEvent, read_event
from talaria.platforms.matrix.settings import MatrixSettings

_MOST_REACTIONS = 100
_LARGEST_PAGE = 5_000_000


class _Page(Struct, frozen=True):
    """A page of events."""

    chunk: list[object] = []


class Reactions:
    """The reactions of one account's rooms."""

    def __init__(self, client: nio.AsyncClient, settings: MatrixSettings) -> None:
        self._client = client
        self._patience = settings.patience

    async def list_for(self, room_id: str, event_id: str) -> list[RoomEvent]:
        """Return the reactions to an event, the latest of them."""
        room, event = quote(room_id, safe=""), quote(event_id, safe="")
        address = f"/_matrix/client/v1/rooms/{room}/relations/{event}/m.annotation/m.reaction?limit={_MOST_REACTIONS}"
        body = await fetch_bytes(self._client, address, patience=self._patience, limit=_LARGEST_PAGE)
        try:
            page = msgspec.json.decode(body, type=_Page)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"the homeserver's answer is not Matrix: {error}") from error
        return [one for source in page.chunk if (one := read_event(source)) is not None]

    async def remove(self, room_id: str, event_id: str, transaction: str) -> None:
        """Redact one of ours."""
        await ask(self._client.room_redact(room_id, event_id, tx_id=transaction), self._patience)
