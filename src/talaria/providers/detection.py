"""Detection of the protocol of a server that is known by its URL only."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path

from talaria.contracts.provider import ModelEvent, ModelRequest, Provider
from talaria.core.errors import ProviderError
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

    ``choices`` open the providers of the protocols; ``remember`` is called with the one that works.
    """

    def __init__(
        self, choices: Mapping[ProtocolName, Callable[[], Provider]], remember: Callable[[ProtocolName], None]
    ) -> None:
        self._choices = dict(choices)
        self._remember = remember
        self._opened: dict[ProtocolName, Provider] = {}
        self._detected: ProtocolName | None = None
        self.name = self._open(next(iter(self._choices))).name

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole."""
        first_error: ProviderError | None = None
        for protocol in (self._detected,) if self._detected else tuple(self._choices):
            try:
                async with aclosing(self._open(protocol).reply(request)) as events:
                    async for event in events:
                        self._settle(protocol)
                        yield event
                return
            except ProviderError as error:
                if self._detected or error.status not in _NO_SUCH_PATH:
                    raise
                first_error = first_error or error
        assert first_error is not None
        raise first_error

    async def models(self) -> list[str]:
        """Return the names of the models available to this account."""
        return await self._open(next(iter(self._choices)) if self._detected is None else self._detected).models()

    async def close(self) -> None:
        """Close the connections."""
        for provider in self._opened.values():
            await provider.close()

    def _open(self, protocol: ProtocolName) -> Provider:
        if protocol not in self._opened:
            self._opened[protocol] = self._choices[protocol]()
        return self._opened[protocol]

    def _settle(self, protocol: ProtocolName) -> None:
        if self._detected is None:
            self._detected = protocol
            self._remember(protocol)
