"""Detection of model servers: the protocol of one known by its URL, and those on this machine."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.provider import ListedModel, ModelEvent, ModelRequest, Provider
from talaria.core.errors import ProviderError, WrongProtocol
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.providers.presets import PRESETS, Preset, ProtocolName, open_provider

_NO_SUCH_PATH = frozenset({404, 405, 501})
PROBE_LIMIT = timedelta(milliseconds=1500)
_CONNECT_SHARE = 6  # nothing listens at an address that takes longer than this fraction (1/n) of the limit to connect
OLLAMA_CONTEXT = 4096  # Ollama's default context on a small machine
_MOST_BYTES = 4_000_000
_JSON = {"Content-Type": "application/json"}


class DetectedProtocols:
    """Protocols that servers turned out to speak, by URL, in a small file; a lost file costs a request."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, base_url: str) -> str:
        """Return the protocol of a server; empty if it is unknown."""
        return self._read().get(base_url, "")

    def remember(self, base_url: str, protocol: ProtocolName) -> None:
        """Store the protocol of a server."""
        with suppress(OSError):
            part = self._file.with_suffix(".part")
            part.write_text(json.dumps({**self._read(), base_url: protocol}), encoding="utf-8")
            part.replace(self._file)

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


class DetectingProvider:
    """A provider that tries several protocols in order until the server knows one, and then stays with it.

    ``choices`` open the providers of the protocols. What works is stored in ``known`` under ``base_url``; with
    ``per_model``, each model has its own protocol.
    """

    def __init__(
        self,
        choices: Mapping[ProtocolName, Callable[[], Provider]],
        known: DetectedProtocols,
        base_url: str,
        *,
        per_model: bool = False,
    ) -> None:
        self._choices = dict(choices)
        self._known = known
        self._base_url = base_url
        self._per_model = per_model
        self._opened: dict[ProtocolName, Provider] = {}
        self._detected: dict[str, ProtocolName] = {}
        self.name = self._open(next(iter(self._choices))).name

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole."""
        key = f"{self._base_url} {request.model}" if self._per_model else self._base_url
        detected = self._find_detected(key)
        first_error: ProviderError | None = None
        for protocol in (detected,) if detected is not None else tuple(self._choices):
            try:
                async with aclosing(self._open(protocol).reply(request)) as events:
                    async for event in events:
                        self._settle(key, protocol)
                        yield event
                return
            except ProviderError as error:
                if detected or not (isinstance(error, WrongProtocol) or error.status in _NO_SUCH_PATH):
                    raise
                first_error = first_error or error
        assert first_error is not None
        raise first_error

    async def models(self) -> list[ListedModel]:
        """Return the models available to this account."""
        detected = self._find_detected(self._base_url)
        return await self._open(next(iter(self._choices)) if detected is None else detected).models()

    async def close(self) -> None:
        """Close the connections."""
        for provider in self._opened.values():
            await provider.close()

    def _open(self, protocol: ProtocolName) -> Provider:
        if protocol not in self._opened:
            self._opened[protocol] = self._choices[protocol]()
        return self._opened[protocol]

    def _find_detected(self, key: str) -> ProtocolName | None:
        if key not in self._detected:
            stored = self._known.get(key)
            for protocol in self._choices:
                if protocol == stored:
                    self._detected[key] = protocol
        return self._detected.get(key)

    def _settle(self, key: str, protocol: ProtocolName) -> None:
        if key not in self._detected:
            self._detected[key] = protocol
            self._known.remember(key, protocol)


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
            models = await open_provider(preset, http, timeouts=_make_timeouts(limit)).models()
    except (ProviderError, TimeoutError):
        return None
    return LocalServer(preset, [one.name for one in models]) if models else None


async def fetch_ollama_context(http: HttpPool, base_url: str, model: str, limit: timedelta = PROBE_LIMIT) -> int | None:
    """Return the context length that Ollama uses for a model; ``None`` if it doesn't answer in time.

    Its OpenAI-compatible API neither reports nor accepts it, and cuts off the beginning of longer input. A loaded model
    has a known length; another will get its own ``num_ctx``, or the server's default.
    """
    server = base_url.removesuffix("/").removesuffix("/v1")
    name = model if ":" in model else f"{model}:latest"
    try:
        async with asyncio.timeout(2 * limit.total_seconds()):
            async with http.get(f"{server}/api/ps", {}, _make_timeouts(limit)) as answer:
                loaded = msgspec.json.decode(await answer.body(_MOST_BYTES), type=_Loaded)
            for one in loaded.models:
                if one.name == name and one.context_length:
                    return one.context_length
            asked = msgspec.json.encode({"model": model})
            async with http.post(f"{server}/api/show", asked, _JSON, _make_timeouts(limit)) as answer:
                card = msgspec.json.decode(await answer.body(_MOST_BYTES), type=_ModelCard)
    except (ProviderError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return card.read_num_ctx() or OLLAMA_CONTEXT


def _make_timeouts(limit: timedelta) -> Timeouts:
    return Timeouts(connect=limit / _CONNECT_SHARE, first_byte=limit, silence=limit)


class _LoadedModel(Struct):
    name: str = ""
    context_length: int = 0


class _Loaded(Struct):
    models: list[_LoadedModel] = []


class _ModelCard(Struct):
    parameters: str = ""

    def read_num_ctx(self) -> int:
        """Return the context length in the model's own file, 0 if there is none."""
        for line in self.parameters.splitlines():
            name, _, value = line.partition(" ")
            if name == "num_ctx" and value.strip().isdigit():
                return int(value)
        return 0
