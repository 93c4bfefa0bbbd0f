"""What a turn says goes into the outbox in the transaction that ends it."""

from collections.abc import Callable
from typing import ClassVar

from talaria.contracts.follower import Ending
from talaria.contracts.store import Transaction
from talaria.sessions.outgoing import queue_end, words_of


class ReplyFollower:
    """Implements `Follower`: every end of a turn is told to whoever waits for it; ``wake`` stirs the delivery.

    ``dressed`` returns a reply with what goes along with it and is no part of the transcript.
    """

    resumable: ClassVar = True

    def __init__(self, wake: Callable[[], None], dressed: Callable[[Transaction, Ending, str], str]) -> None:
        self._wake = wake
        self._dressed = dressed

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Queue what was said, for the place from which the question came."""
        if ending.route is not None:
            queue_end(tx, ending, self._dressed(tx, ending, words_of(ending.end)))

    async def follow_up(self) -> bool:
        """Let it be delivered."""
        self._wake()
        return False
