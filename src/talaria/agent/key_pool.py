"""Several keys of one provider, used as one account."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from msgspec import Struct

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ListedModel, ModelEvent, ModelRequest, Provider
from talaria.core.errors import BadKey, NoCredit, ProviderBusy, ProviderError

MIN_REST = timedelta(seconds=1)
LONG_REST = timedelta(hours=1)


class KeyRest(Struct, frozen=True):
    """Why a key is not used, and until when."""

    until: datetime
    reason: ProviderError


class KeyPool:
    """Selects one of several keys.

    A key is used until it has to rest, so that the provider's prompt cache stays warm; then the next one is used. A
    rate-limited key rests as long as the provider says, one that is bad or out of credit for an hour.
    """

    def __init__(self, size: int, clock: Clock) -> None:
        self._clock = clock
        self._rests: list[KeyRest | None] = [None] * size
        self._current = 0

    def pick(self) -> int:
        """Return the index of a usable key.

        Raises `ProviderBusy` with the shortest wait if all are resting, or a key's error if waiting won't help any of
        them.
        """
        now = self._clock.now()
        for step in range(len(self._rests)):
            index = (self._current + step) % len(self._rests)
            rest = self._rests[index]
            if rest is None or rest.until <= now:
                self._current = index
                return index
        raise self._build_error(now)

    def rest_key(self, index: int, reason: ProviderBusy | BadKey | NoCredit) -> None:
        """Stop using a key for a while, and continue with the next."""
        wait = max(reason.retry_after, MIN_REST) if isinstance(reason, ProviderBusy) else LONG_REST
        self._rests[index] = KeyRest(self._clock.now() + wait, reason)
        self._current = (index + 1) % len(self._rests)

    def _build_error(self, now: datetime) -> ProviderError:
        rests = [rest for rest in self._rests if rest is not None]
        busy = [rest.until - now for rest in rests if isinstance(rest.reason, ProviderBusy)]
        reason = rests[-1].reason
        failed: ProviderError
        if busy:
            failed = ProviderBusy(
                f"all {len(rests)} keys are cooling down", retry_after=min(busy), status=reason.status
            )
        else:
            failed = type(reason)(f"all {len(rests)} keys failed, the last with: {reason}", status=reason.status)
        failed.attribute_to(reason.source)
        return failed


class PooledProvider:
    """Implementation of `Provider` over providers that differ only in their key."""

    def __init__(self, providers: Sequence[Provider], clock: Clock) -> None:
        self.name = providers[0].name
        self._providers = tuple(providers)
        self._keys = KeyPool(len(providers), clock)

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply of the first key that gives one; once a reply has started, its error is raised."""
        while True:
            index = self._keys.pick()
            has_begun = False
            try:
                async with aclosing(self._providers[index].reply(request)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except (ProviderBusy, BadKey, NoCredit) as error:
                self._keys.rest_key(index, error)
                if has_begun:
                    raise

    async def models(self) -> list[ListedModel]:
        """Return the names of the models available to these keys."""
        while True:
            index = self._keys.pick()
            try:
                return await self._providers[index].models()
            except (ProviderBusy, BadKey, NoCredit) as error:
                self._keys.rest_key(index, error)

    async def close(self) -> None:
        """Close the connections."""
        for provider in self._providers:
            await provider.close()
