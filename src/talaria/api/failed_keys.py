"""Requests with unknown keys, by address: each answer takes longer than the one before, and the log shows them."""

import asyncio
import logging
from collections import OrderedDict
from time import monotonic

from msgspec import Struct

from talaria.api.problems import Problem, too_many

_ADDRESSES = 1024  # the most that are remembered
_FORGET_SECONDS = 600.0
_FREE = 3  # failures that are answered at once
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
_WAITING_AT_ONCE = 32

log = logging.getLogger(__name__)


class _Failures(Struct):
    count: int = 0
    at: float = 0.0


class FailedKeys:
    """Counts failures for each address, for ten minutes after the last one.

    A valid key is never delayed, from whichever address, so that nobody can lock out others.
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Failures] = OrderedDict()
        self._waiting = 0

    async def refuse(self, problem: Problem, address: str) -> Problem:
        """Count a failure, wait for as long as it is due, and return the error to answer with."""
        count = self._count(address)
        if str(count).rstrip("0") == "1":  # the first, the tenth, the hundredth
            log.warning("unknown API key from %s (%d in a row)", address, count)
        delay = _delay(count)
        if not delay:
            return problem
        if self._waiting >= _WAITING_AT_ONCE:
            message = "Too many requests with unknown keys: wait a little."
            return too_many(message, seconds=round(_LONGEST_DELAY), code="too_many_failed_keys")
        self._waiting += 1
        try:
            await asyncio.sleep(delay)
        finally:
            self._waiting -= 1
        return problem

    def _count(self, address: str) -> int:
        now = monotonic()
        failures = self._addresses.pop(address, _Failures())
        if now - failures.at > _FORGET_SECONDS:
            failures = _Failures()
        failures.count, failures.at = failures.count + 1, now
        self._addresses[address] = failures
        if len(self._addresses) > _ADDRESSES:
            self._addresses.popitem(last=False)
        return failures.count


def _delay(count: int) -> float:
    """Return for how many seconds the answer to a failure waits."""
    doublings = min(count - _FREE - 1, 10)
    return min(_FIRST_DELAY * 2**doublings, _LONGEST_DELAY) if doublings >= 0 else 0.0
