"""Reactions: those that an event has, and how one of ours is taken away."""

from urllib.parse import quote

import msgspec
import nio
from msgspec import Struct

from talaria.core.errors import Unreachable
from talaria.platforms.matrix.calls import ask, load
from talaria.platforms.matrix.events import RoomEvent, read_event
from talaria.platforms.matrix.settings import MatrixSettings

_MOST = 100
_LARGEST_PAGE = 5_000_000


class _Page(Struct, frozen=True):
    """Some events of many."""

    chunk: list[object] = []


class Marks:
    """The reactions of one account's rooms."""

    def __init__(self, client: nio.AsyncClient, settings: MatrixSettings) -> None:
        self._client = client
        self._patience = settings.patience

    async def of(self, room_id: str, event_id: str) -> list[RoomEvent]:
        """Return the reactions to an event, the latest of them."""
        room, event = quote(room_id, safe=""), quote(event_id, safe="")
        address = f"/_matrix/client/v1/rooms/{room}/relations/{event}/m.annotation/m.reaction?limit={_MOST}"
        body = await load(self._client, address, patience=self._patience, limit=_LARGEST_PAGE)
        try:
            page = msgspec.json.decode(body, type=_Page)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"the homeserver answered with something else than Matrix: {error}") from error
        return [one for source in page.chunk if (one := read_event(source)) is not None]

    async def take_away(self, room_id: str, event_id: str, transaction: str) -> None:
        """Redact one of ours."""
        await ask(self._client.room_redact(room_id, event_id, tx_id=transaction), self._patience)
