"""Find model servers that run on this machine."""

import asyncio
from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.core.errors import ProviderError
from talaria.providers.http import HttpPool
from talaria.providers.opening import open_provider
from talaria.providers.presets import PRESETS, Preset
from talaria.providers.timeouts import Timeouts

PROBE_LIMIT = timedelta(milliseconds=250)
OLLAMA_CONTEXT = 4096  # what Ollama gives a model on a small machine, unless it is told otherwise
_LIMITS = Timeouts(connect=PROBE_LIMIT, first_byte=PROBE_LIMIT, silence=PROBE_LIMIT)
_MOST_BYTES = 4_000_000
_JSON = {"Content-Type": "application/json"}


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
    try:
        async with asyncio.timeout(PROBE_LIMIT.total_seconds()):
            models = await open_provider(preset, http, timeouts=_LIMITS).models()
    except (ProviderError, TimeoutError):
        return None
    return LocalServer(preset, models) if models else None


async def ollama_context(http: HttpPool, base_url: str, model: str) -> int | None:
    """Return the context length that Ollama runs a model with; ``None`` where it does not answer in time.

    Its OpenAI-compatible API neither tells nor takes it, and cuts off the beginning of what is longer. A model that is
    loaded has a known length; one that is not will get its own ``num_ctx``, or as much as the server gives by default.
    """
    server = base_url.removesuffix("/").removesuffix("/v1")
    name = model if ":" in model else f"{model}:latest"
    try:
        async with asyncio.timeout(2 * PROBE_LIMIT.total_seconds()):
            async with http.get(f"{server}/api/ps", {}, _LIMITS) as answer:
                loaded = msgspec.json.decode(await answer.body(_MOST_BYTES), type=_Loaded)
            for one in loaded.models:
                if one.name == name and one.context_length:
                    return one.context_length
            asked = msgspec.json.encode({"model": model})
            async with http.post(f"{server}/api/show", asked, _JSON, _LIMITS) as answer:
                card = msgspec.json.decode(await answer.body(_MOST_BYTES), type=_ModelCard)
    except (ProviderError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return card.num_ctx() or OLLAMA_CONTEXT


class _LoadedModel(Struct):
    name: str = ""
    context_length: int = 0


class _Loaded(Struct):
    models: list[_LoadedModel] = []


class _ModelCard(Struct):
    parameters: str = ""

    def num_ctx(self) -> int:
        """Return the context length that the model's own file asks for, 0 where it asks for none."""
        for line in self.parameters.splitlines():
            name, _, value = line.partition(" ")
            if name == "num_ctx" and value.strip().isdigit():
                return int(value)
        return 0
