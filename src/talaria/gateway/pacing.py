"""How fast a network is spoken to: it may ask everybody to wait, and what failed is tried again ever more seldom."""

import asyncio
from datetime import timedelta

from msgspec import Struct


class Pace(Struct, frozen=True, kw_only=True):
    """How long things may take.

    ``call`` is the time that one call to a network has, ``claim`` for how long an item is ours: longer than
    several calls. ``poll`` is how often the outbox is looked at unasked. ``grace`` is how long what is under way may
    go on when everything stops. ``quiet`` is how long a final text waits for a preview to end.

    At most ``at_once`` items go out side by side. Where a network does not recognise what it was sent before, it is one
    at a time, so that a worker that is killed leaves one in doubt; but one for which the network takes longer than
    ``alone`` does not hold up the others.
    """

    call: timedelta = timedelta(seconds=20)
    claim: timedelta = timedelta(seconds=120)
    poll: timedelta = timedelta(seconds=10)
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(seconds=5)
    quiet: timedelta = timedelta(seconds=10)
    alone: timedelta = timedelta(seconds=0.6)
    at_once: int = 16

    def pause(self, attempts: int) -> timedelta:
        """Return how long to wait behind so many attempts: twice as long each time."""
        return min(self.first_pause * (1 << min(max(attempts - 1, 0), 30)), self.longest_pause)


class Gate:
    """Shut while a network wants to be left alone. Shared by all that speak to it."""

    def __init__(self) -> None:
        self._shut_until = 0.0

    @property
    def shut_for(self) -> float:
        """For how many seconds it is shut."""
        return max(self._shut_until - asyncio.get_running_loop().time(), 0.0)

    def shut(self, duration: timedelta) -> None:
        """Keep everybody out for so long, or for longer if that was said before."""
        until = asyncio.get_running_loop().time() + duration.total_seconds()
        self._shut_until = max(self._shut_until, until)

    def open(self) -> None:
        """Let everybody in."""
        self._shut_until = 0.0
