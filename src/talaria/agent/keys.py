"""Several keys of one provider, used as one account that rarely has to wait."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from msgspec import Struct

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelEvent, ModelRequest, Provider
from talaria.core.errors import BadKey, NoCredit, ProviderBusy, ProviderError

LEAST_REST = timedelta(seconds=1)
LONG_REST = timedelta(hours=1)


class Rest(Struct, frozen=True):
    """Why a key is left alone, and until when."""

    until: datetime
    reason: ProviderError


class KeyPool:
    """Which of several keys to use now.

    One key is used until it must rest, so that the provider's prompt cache stays warm; then the next one's turn
    comes. A busy key rests as long as it was told, one that is bad or out of credit for an hour.
    """

    def __init__(self, size: int, clock: Clock) -> None:
        self._clock = clock
        self._rests: list[Rest | None] = [None] * size
        self._current = 0

    def pick(self) -> int:
        """Return the place of a key that may be used.

        Raises `ProviderBusy` with the shortest wait when all of them rest, or what is wrong with a key when time
        will mend none.
        """
        now = self._clock.now()
        for step in range(len(self._rests)):
            place = (self._current + step) % len(self._rests)
            rest = self._rests[place]
            if rest is None or rest.until <= now:
                self._current = place
                return place
        raise self._all_rest(now)

    def give_rest(self, place: int, reason: ProviderBusy | BadKey | NoCredit) -> None:
        """Leave a key alone for a while, and go on with the next."""
        wait = max(reason.retry_after, LEAST_REST) if isinstance(reason, ProviderBusy) else LONG_REST
        self._rests[place] = Rest(self._clock.now() + wait, reason)
        self._current = (place + 1) % len(self._rests)

    def _all_rest(self, now: datetime) -> ProviderError:
        rests = [rest for rest in self._rests if rest is not None]
        busy = [rest.until - now for rest in rests if isinstance(rest.reason, ProviderBusy)]
        reason = rests[-1].reason
        failed: ProviderError
        if busy:
            failed = ProviderBusy(f"all {len(rests)} keys must rest", retry_after=min(busy), status=reason.status)
        else:
            failed = type(reason)(f"all {len(rests)} keys fail, the last with: {reason}", status=reason.status)
        failed.attribute_to(reason.source)
        return failed


class PooledProvider:
    """Implements `Provider` over providers that differ only in their key."""

    def __init__(self, providers: Sequence[Provider], clock: Clock) -> None:
        self.name = providers[0].name
        self._providers = tuple(providers)
        self._keys = KeyPool(len(providers), clock)

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply of the first key that gives one; once a reply has begun, its error is the caller's."""
        while True:
            place = self._keys.pick()
            has_begun = False
            try:
                async with aclosing(self._providers[place].reply(request)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except (ProviderBusy, BadKey, NoCredit) as error:
                self._keys.give_rest(place, error)
                if has_begun:
                    raise

    async def models(self) -> list[str]:
        """Return the names of the models that these keys may use."""
        while True:
            place = self._keys.pick()
            try:
                return await self._providers[place].models()
            except (ProviderBusy, BadKey, NoCredit) as error:
                self._keys.give_rest(place, error)

    async def close(self) -> None:
        """Let go of connections."""
        for provider in self._providers:
            await provider.close()
