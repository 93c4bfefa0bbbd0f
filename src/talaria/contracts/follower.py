"""Who hears of finished turns: goals, exports, whatever else goes on behind a reply."""

from typing import ClassVar, Protocol

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.addresses import Route
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Message


class Ending(Struct, frozen=True):
    """How a turn ended; ``reply`` is what it said last, if anything, and ``route`` where that goes."""

    session_id: SessionId
    turn_id: TurnId
    end: TurnEnd
    reply: Message | None
    route: Route | None = None


class Witness(Protocol):
    """Takes note of the turns of one conversation."""

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Take note, in the transaction that ends the turn: all of it happens or nothing."""


class Follower(Witness, Protocol):
    """A witness that has something to do behind the reply as well.

    ``resumable`` says that `follow_up` may be cut off at any time, because what it does is done at the next start.
    """

    resumable: ClassVar[bool]

    async def follow_up(self) -> bool:
        """Do what comes behind the reply, as long as that takes; ``True`` if something waits in the inbox now.

        It is also called when a conversation is opened; a resumable one is cut off when it is called again.
        """
