"""Find model servers on this machine."""

import asyncio
from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.core.errors import ProviderError
from talaria.http_client.client import HttpPool
from talaria.http_client.timeouts import Timeouts
from talaria.providers.factory import open_provider
from talaria.providers.presets import PRESETS, Preset

PROBE_LIMIT = timedelta(milliseconds=1500)
_CONNECT_LIMIT = timedelta(milliseconds=250)  # nothing listens there otherwise
OLLAMA_CONTEXT = 4096  # Ollama's default context on a small machine
_MOST_BYTES = 4_000_000
_JSON = {"Content-Type": "application/json"}


class LocalServer(Struct, frozen=True):
    """A running local server and its models."""

    preset: Preset
    models: list[str]


async def probe_local(
    http: HttpPool, presets: tuple[Preset, ...] = PRESETS, limit: timedelta = PROBE_LIMIT
) -> list[LocalServer]:
    """Return the local servers that list a model within ``limit``, probed in parallel; never raises.

    It takes that long only if a server accepts a connection and doesn't answer, as on a very busy machine.
    """
    local = [preset for preset in presets if preset.port is not None]
    found = await asyncio.gather(*(_probe(preset, http, limit) for preset in local))
    return [server for server in found if server is not None]


async def _probe(preset: Preset, http: HttpPool, limit: timedelta) -> LocalServer | None:
    try:
        async with asyncio.timeout(limit.total_seconds()):
            models = await open_provider(preset, http, timeouts=_timeouts(limit)).models()
    except (ProviderError, TimeoutError):
        return None
    return LocalServer(preset, [one.name for one in models]) if models else None


async def ollama_context(http: HttpPool, base_url: str, model: str, limit: timedelta = PROBE_LIMIT) -> int | None:
    """Return the context length that Ollama uses for a model; ``None`` if it doesn't answer in time.

    Its OpenAI-compatible API neither reports nor accepts it, and cuts off the beginning of longer input. A loaded model
    has a known length; another will get its own ``num_ctx``, or the server's default.
    """
    server = base_url.removesuffix("/").removesuffix("/v1")
    name = model if ":" in model else f"{model}:latest"
    try:
        async with asyncio.timeout(2 * limit.total_seconds()):
            async with http.get(f"{server}/api/ps", {}, _timeouts(limit)) as answer:
                loaded = msgspec.json.decode(await answer.body(_MOST_BYTES), type=_Loaded)
            for one in loaded.models:
                if one.name == name and one.context_length:
                    return one.context_length
            asked = msgspec.json.encode({"model": model})
            async with http.post(f"{server}/api/show", asked, _JSON, _timeouts(limit)) as answer:
                card = msgspec.json.decode(await answer.body(_MOST_BYTES), type=_ModelCard)
    except (ProviderError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return card.num_ctx() or OLLAMA_CONTEXT


def _timeouts(limit: timedelta) -> Timeouts:
    return Timeouts(connect=min(limit, _CONNECT_LIMIT), first_byte=limit, silence=limit)


class _LoadedModel(Struct):
    name: str = ""
    context_length: int = 0


class _Loaded(Struct):
    models: list[_LoadedModel] = []


class _ModelCard(Struct):
    parameters: str = ""

    def num_ctx(self) -> int:
        """Return the context length in the model's own file, 0 if there is none."""
        for line in self.parameters.splitlines():
            name, _, value = line.partition(" ")
            if name == "num_ctx" and value.strip().isdigit():
                return int(value)
        return 0
