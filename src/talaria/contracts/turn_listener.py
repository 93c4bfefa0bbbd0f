"""Turn listeners: notified when a turn ends, for example goals and exports."""

from collections.abc import Callable
from typing import ClassVar, Protocol

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.addresses import ReplyRoute
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Message


class TurnResult(Struct, frozen=True):
    """The result of a turn; ``reply`` is its last text, if any, and ``route`` the destination.

    ``used_tools`` is false if it is certain that no tool was called.
    """

    session_id: SessionId
    turn_id: TurnId
    end: TurnEnd
    reply: Message | None
    route: ReplyRoute | None = None
    used_tools: bool = True


AfterCommit = Callable[[], None]


class TurnListener(Protocol):
    """A listener for the turns of one session."""

    def turn_ended(self, tx: Transaction, result: TurnResult) -> AfterCommit | None:
        """Handle the end of a turn, in the transaction that ends it: all of it happens or nothing.

        The transaction may run again, so this changes nothing but the store. It returns what is to be done in this
        process after the commit, if anything.
        """


class TurnFollowUp(TurnListener, Protocol):
    """A turn listener that also has work to do after the reply.

    ``resumable`` means that `follow_up` may be cancelled at any time, because the next start repeats it.
    """

    resumable: ClassVar[bool]

    @property
    def has_follow_up(self) -> bool:
        """Return whether the turn that has just ended leaves work for `follow_up`; without any, it is not called."""

    async def follow_up(self) -> bool:
        """Do the work after the reply; return ``True`` if the inbox has a new message.

        It is always called when a session is opened; a resumable one is cancelled when it is called again.
        """
