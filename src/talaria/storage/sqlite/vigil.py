"""When to look at a store whose log has a bell: it rings before there is something to see, or where nothing comes."""

_SOONEST = 0.0005
_PATIENCE = 5.0
_AFTERWARDS = 0.1
_MOST_MISSED = 3


class Vigil:
    """Who looks sleeps until the bell rings, or for a while; times are seconds of any clock that goes on.

    Behind the bell they look ever more seldom, until ``every`` so many seconds: what was written is seen when it is
    durable, and never if it is undone. Behind a commit they stay awake for a moment, since another may have begun.
    """

    def __init__(self, every: float, now: float) -> None:
        self.pause = _SOONEST
        self._every = every
        self._awake_until = now + _AFTERWARDS
        self._slept = False
        self._missed = 0

    @property
    def trusts_bell(self) -> bool:
        """Whether it has rung for one of the last commits that came in the sleep."""
        return self._missed < _MOST_MISSED

    def is_asleep(self, now: float) -> bool:
        """Tell whether to wait for the bell; else look after a ``pause``."""
        self._slept = now >= self._awake_until
        return self._slept

    def looked(self, now: float, *, rung: bool, found: bool) -> None:
        """Take note of a look: whether it had rung since the one before, and whether there was a commit."""
        self.pause = _SOONEST if self._slept else min(2 * self.pause, self._every)
        if rung:
            self._missed = 0
        elif found and self._slept:
            self._missed += 1
        if found:
            self._awake_until, self.pause = now + _AFTERWARDS, self._every
        elif rung:
            self._awake_until = now + _PATIENCE
