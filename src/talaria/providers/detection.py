"""Detection of the protocol of a server that is known by its URL only."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path

from talaria.contracts.provider import ListedModel, ModelEvent, ModelRequest, Provider
from talaria.core.errors import ProviderError, WrongProtocol
from talaria.providers.presets import ProtocolName

_NO_SUCH_PATH = frozenset({404, 405, 501})


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
