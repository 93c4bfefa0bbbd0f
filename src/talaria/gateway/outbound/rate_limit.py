"""Rate limits, timeouts and delivery policy for calls to a network."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from msgspec import Struct

from talaria.contracts.platform import Rate, Rates
from talaria.core.addresses import Address
from talaria.core.errors import SlowDown, Unreachable


class DeliveryPolicy(Struct, frozen=True, kw_only=True):
    """Timeouts and limits of delivery.

    ``call`` limits one call to a network; ``claim`` is how long an item is claimed, which is longer than several calls.
    ``poll`` is the interval of outbox checks without a notification. ``grace`` is the time that calls in progress get
    at shutdown. ``quiet`` is how long a final text waits for a preview to end. ``hold`` is how long an item may wait
    for the rate limit of its chat before it returns to the outbox.

    At most ``at_once`` calls for different addresses are made in parallel, one at a time for each address: a worker
    that is killed leaves at most one message in doubt for each of them. ``at_hand`` limits the claimed items, including
    those that wait for the rate limit of their chat.
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
        """Return the pause after this many attempts; it doubles each time up to ``longest_pause``."""
        return min(self.first_pause * (1 << min(max(attempts - 1, 0), 30)), self.longest_pause)


_MAX_CHATS = 2_000


_UNLIMITED = 1_000_000


# Share of a rate that a call leaves to more important calls. All calls except replies share a third of the rate.
REPLY, PREVIEW, TYPING = 0.0, 0.6, 0.8


_EXTRAS_DIVISOR = 3


class Throttle:
    """Rate limiter shared by all callers of one network.

    A caller makes a call only after `take` returned ``True``; `delay` returns how long to wait. A pause applies to the
    whole network if the network says so, or does not say and another chat is paused already; else to one chat.
    """

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._network = 0.0
        self._extras = 0.0
        self._extras_rate = _scale_rate(self._rates.network)
        self._chats: dict[str, float] = {}
        self._shut_until = 0.0
        self._chats_shut_until: dict[str, float] = {}

    @property
    def shut_for(self) -> float:
        """The seconds for which the whole network is paused."""
        return max(self._shut_until - _now(), 0.0)

    @property
    def free(self) -> int:
        """The number of calls that the network's rate allows now."""
        rate = self._rates.network
        if self.shut_for:
            return 0
        return _UNLIMITED if rate is None else int(rate.burst - _count_used(self._network, rate))

    @property
    def network_delay(self) -> float:
        """The seconds until the network's rate allows another call."""
        return max(self.shut_for, _delay(self._network, self._rates.network, REPLY))

    def delay(self, to: Address, share: float = REPLY) -> float:
        """Return the seconds until a chat may be called; ``share`` of each rate is left to other calls."""
        shut = self._chats_shut_until.get(to.chat_id, 0.0) - _now()
        chat = _delay(self._chats.get(to.chat_id, 0.0), self._chat_rate(to), share)
        extra = _delay(self._extras, self._extras_rate, 0.0) if share else 0.0
        return max(shut, self.shut_for, _delay(self._network, self._rates.network, share), chat, extra)

    def take(self, to: Address, share: float = REPLY) -> bool:
        """Count a call that is about to be made; ``False`` if it may not be made yet."""
        if self.delay(to, share):
            return False
        self._network = _add_call(self._network, self._rates.network)
        if share:
            self._extras = _add_call(self._extras, self._extras_rate)
        rate = self._chat_rate(to)
        if rate is not None:
            self._chats[to.chat_id] = _add_call(self._chats.get(to.chat_id, 0.0), rate)
        if len(self._chats) > _MAX_CHATS:
            now = _now()
            self._chats = {chat: until for chat, until in self._chats.items() if until > now}
        return True

    def slow_down(self, to: Address, error: SlowDown) -> None:
        """Record a pause that the network asked for."""
        now, until = _now(), _now() + error.retry_after.total_seconds()
        self._chats_shut_until = {chat: end for chat, end in self._chats_shut_until.items() if end > now}
        others = self._chats_shut_until.keys() - {to.chat_id}
        if error.everywhere or (error.everywhere is None and others):
            self._shut_until = max(self._shut_until, until)
        self._chats_shut_until[to.chat_id] = max(self._chats_shut_until.get(to.chat_id, 0.0), until)

    def shut(self, duration: timedelta) -> None:
        """Pause the whole network for this long; a longer pause stays in force."""
        self._shut_until = max(self._shut_until, _now() + duration.total_seconds())

    def open(self) -> None:
        """End the pause of the whole network."""
        self._shut_until = 0.0

    def _chat_rate(self, to: Address) -> Rate | None:
        return self._rates.chat if to.chat_type == "private" else self._rates.group


def _now() -> float:
    return asyncio.get_running_loop().time()


def _count_used(until: float, rate: Rate) -> float:
    """Return how many calls of a burst are used up; ``until`` is when none would be."""
    return max(until - _now(), 0.0) * rate.per_second


def _delay(until: float, rate: Rate | None, share: float) -> float:
    if rate is None:
        return 0.0
    most = max(rate.burst * (1 - share), 1.0)
    return max((_count_used(until, rate) + 1 - most) / rate.per_second, 0.0)


def _scale_rate(rate: Rate | None) -> Rate | None:
    return None if rate is None else Rate(rate.per_second / _EXTRAS_DIVISOR, max(rate.burst // _EXTRAS_DIVISOR, 1))


def _add_call(until: float, rate: Rate | None) -> float:
    return 0.0 if rate is None else max(until, _now()) + 1 / rate.per_second


T = TypeVar("T")


async def call_with_timeout(call: Awaitable[T], seconds: float) -> T:
    """Return the result of a network call; raises `Unreachable` after this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise Unreachable(f"no answer within {seconds:g} s") from error
