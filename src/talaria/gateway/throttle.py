"""How fast a network may be called: its documented rates, and the pauses that it asks for."""

import asyncio
from datetime import timedelta

from talaria.contracts.platform import Rate, Rates
from talaria.core.addresses import Address
from talaria.core.errors import SlowDown

_MOST_CHATS = 2_000
_UNLIMITED = 1_000_000

# The share of a rate that a call leaves to more important ones. All that are not replies share a third of the rate.
REPLY, PREVIEW, TYPING = 0.0, 0.6, 0.8
_EXTRAS = 3


class Throttle:
    """Shared by all that call one network: a call is made when it could `take` its turn, after its `delay`.

    A pause that the network asks for holds for one chat; when another chat is told to wait within that time, for all.
    """

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._network = 0.0
        self._extras = 0.0
        self._extras_rate = _fraction(self._rates.network)
        self._chats: dict[str, float] = {}
        self._shut_until = 0.0
        self._chats_shut_until: dict[str, float] = {}

    @property
    def shut_for(self) -> float:
        """For how many seconds the whole network wants to be left alone."""
        return max(self._shut_until - _now(), 0.0)

    @property
    def free(self) -> int:
        """How many calls the network's rate allows at this moment."""
        rate = self._rates.network
        if self.shut_for:
            return 0
        return _UNLIMITED if rate is None else int(rate.burst - _used(self._network, rate))

    @property
    def network_delay(self) -> float:
        """In how many seconds the network's rate allows another call."""
        return max(self.shut_for, _delay(self._network, self._rates.network, REPLY))

    def delay(self, to: Address, share: float = REPLY) -> float:
        """Return in how many seconds a chat may be called; ``share`` of each rate is left to others."""
        shut = self._chats_shut_until.get(to.chat_id, 0.0) - _now()
        chat = _delay(self._chats.get(to.chat_id, 0.0), self._chat_rate(to), share)
        extra = _delay(self._extras, self._extras_rate, 0.0) if share else 0.0
        return max(shut, self.shut_for, _delay(self._network, self._rates.network, share), chat, extra)

    def take(self, to: Address, share: float = REPLY) -> bool:
        """Count a call that is about to be made; ``False`` when it may not be made yet."""
        if self.delay(to, share):
            return False
        self._network = _counted(self._network, self._rates.network)
        if share:
            self._extras = _counted(self._extras, self._extras_rate)
        rate = self._chat_rate(to)
        if rate is not None:
            self._chats[to.chat_id] = _counted(self._chats.get(to.chat_id, 0.0), rate)
        if len(self._chats) > _MOST_CHATS:
            now = _now()
            self._chats = {chat: until for chat, until in self._chats.items() if until > now}
        return True

    def slow_down(self, to: Address, error: SlowDown) -> None:
        """Take note of a pause that the network asks for."""
        now, until = _now(), _now() + error.retry_after.total_seconds()
        self._chats_shut_until = {chat: end for chat, end in self._chats_shut_until.items() if end > now}
        others = self._chats_shut_until.keys() - {to.chat_id}
        if error.everywhere or (error.everywhere is None and others):
            self._shut_until = max(self._shut_until, until)
        self._chats_shut_until[to.chat_id] = max(self._chats_shut_until.get(to.chat_id, 0.0), until)

    def shut(self, duration: timedelta) -> None:
        """Leave the whole network alone for so long, or for longer if that was asked for before."""
        self._shut_until = max(self._shut_until, _now() + duration.total_seconds())

    def open(self) -> None:
        """Call the network again."""
        self._shut_until = 0.0

    def _chat_rate(self, to: Address) -> Rate | None:
        return self._rates.chat if to.chat_type == "private" else self._rates.group


def _now() -> float:
    return asyncio.get_running_loop().time()


def _used(until: float, rate: Rate) -> float:
    """Return how many calls of a burst are used up; ``until`` is when none would be."""
    return max(until - _now(), 0.0) * rate.per_second


def _delay(until: float, rate: Rate | None, share: float) -> float:
    if rate is None:
        return 0.0
    most = max(rate.burst * (1 - share), 1.0)
    return max((_used(until, rate) + 1 - most) / rate.per_second, 0.0)


def _fraction(rate: Rate | None) -> Rate | None:
    return None if rate is None else Rate(rate.per_second / _EXTRAS, max(rate.burst // _EXTRAS, 1))


def _counted(until: float, rate: Rate | None) -> float:
    return 0.0 if rate is None else max(until, _now()) + 1 / rate.per_second
