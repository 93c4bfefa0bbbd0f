"""Find model servers that run on this machine."""

import asyncio
from datetime import timedelta

from msgspec import Struct

from talaria.core.errors import ProviderError
from talaria.providers.http import HttpPool
from talaria.providers.opening import open_provider
from talaria.providers.presets import PRESETS, Preset
from talaria.providers.timeouts import Timeouts

PROBE_LIMIT = timedelta(milliseconds=250)


class LocalServer(Struct, frozen=True):
    """A server on this machine that answered, and the models it has."""

    preset: Preset
    models: list[str]


async def probe_local(http: HttpPool, presets: tuple[Preset, ...] = PRESETS) -> list[LocalServer]:
    """Return the local servers that answer with at least one model, all asked at once; never raises."""
    local = [preset for preset in presets if preset.port is not None]
    found = await asyncio.gather(*(_probe(preset, http) for preset in local))
    return [server for server in found if server is not None]


async def _probe(preset: Preset, http: HttpPool) -> LocalServer | None:
    limits = Timeouts(connect=PROBE_LIMIT, first_byte=PROBE_LIMIT, silence=PROBE_LIMIT)
    try:
        async with asyncio.timeout(PROBE_LIMIT.total_seconds()):
            models = await open_provider(preset, http, timeouts=limits).models()
    except (ProviderError, TimeoutError):
        return None
    return LocalServer(preset, models) if models else None
