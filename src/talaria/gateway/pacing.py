"""How long deliveries may take, and when what failed is tried again."""

from datetime import timedelta

from msgspec import Struct


class Pace(Struct, frozen=True, kw_only=True):
    """How long things may take.

    ``call`` is the time that one call to a network has, ``claim`` for how long an item is ours: longer than
    several calls. ``poll`` is how often the outbox is looked at unasked. ``grace`` is how long what is under way may
    go on when everything stops. ``quiet`` is how long a final text waits for a preview to end. ``hold`` is how long an
    item may wait for the rate of its chat before it goes back to the outbox.

    At most ``at_once`` calls for different addresses are made in parallel, one at a time for each address: a worker
    that is killed leaves at most one message in doubt for each of them. ``at_hand`` is how many items may be claimed,
    those that wait for the rate of their chat included.
    """

    call: timedelta = timedelta(seconds=20)
    claim: timedelta = timedelta(seconds=120)
    poll: timedelta = timedelta(seconds=10)
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(seconds=5)
    quiet: timedelta = timedelta(seconds=20)
    hold: timedelta = timedelta(seconds=5)
    at_once: int = 16
    at_hand: int = 128

    def pause(self, attempts: int) -> timedelta:
        """Return how long to wait behind so many attempts: twice as long each time."""
        return min(self.first_pause * (1 << min(max(attempts - 1, 0), 30)), self.longest_pause)
