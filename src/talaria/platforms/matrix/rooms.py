"""The state of the rooms that an account is in, as far as we use it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from talaria.platforms.matrix.events import RoomEvent
from talaria.platforms.matrix.incoming import RoomInfo

_MOST_NAMES = 5


class RoomState:
    """Name, members and encryption of a room, from its state events, oldest first."""

    def __init__(self) -> None:
        self.encrypted = False
        self._name = ""
        self._alias = ""
        self._people: dict[str, str] = {}

    def apply(self, events: Iterable[RoomEvent]) -> None:
        """Apply the state events among these."""
        for event in events:
            if event.state_key is None:
                continue
            match event.type:
                case "m.room.name":
                    self._name = _text(event, "name")
                case "m.room.canonical_alias":
                    self._alias = _text(event, "alias")
                case "m.room.encryption":
                    self.encrypted = True  # can't be turned off
                case "m.room.member" if event.content.get("membership") in ("join", "invite"):
                    self._people[event.state_key] = _text(event, "displayname")
                case "m.room.member":
                    self._people.pop(event.state_key, None)

    def describe(self, room_id: str, user_id: str) -> RoomInfo:
        """Return what is known of the room; a room without a name is called after its other members."""
        name = self._name or self._alias or self._member_names(user_id)
        return RoomInfo(room_id, len(self._people), name, self._people)

    def _member_names(self, user_id: str) -> str:
        counts = Counter(self._people.values())
        names = sorted(
            f"{name} ({one})" if counts[name] > 1 else name
            for one, name in ((one, name or one) for one, name in self._people.items() if one != user_id)
        )
        if len(names) > _MOST_NAMES:
            others = len(names) - _MOST_NAMES
            names = [*names[:_MOST_NAMES], f"{others} other{'s' if others > 1 else ''}"]
        return _listed(names) or "Empty room"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _text(event: RoomEvent, name: str) -> str:
    """Return a text of an event's content, whose sender may have written anything there."""
    value = event.content.get(name)
    return value if isinstance(value, str) else ""
