"""The provider for the embedded model."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ListedModel, ModelEvent, ModelRequest
from talaria.core.errors import ModelUnknown
from talaria.providers.embedded.incoming import ReplyUnderway
from talaria.providers.embedded.outgoing import encode
from talaria.providers.embedded.weights import INSTALL, MODEL, PROVIDER, check_weights, find_weights, is_installed

if TYPE_CHECKING:
    from talaria.providers.embedded.runtime import Runtime


class EmbeddedProvider:
    """A provider with one model in this process, loaded at the first call.

    One thread owns the model, so calls are answered one after the other. ``checked`` is a file that records that the
    weights were verified.
    """

    name = PROVIDER

    def __init__(self, checked: Path, clock: Clock | None = None) -> None:
        self._checked = checked
        self._clock = clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, "embedded-model")
        self._runtime: Runtime | None = None

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole; closing the generator stops the model."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        stopped = Event()

        def hear(piece: bytes) -> bool:
            if not stopped.is_set():
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            return stopped.is_set()

        work = loop.run_in_executor(self._thread, self._ask, encode(request), hear, stopped)
        work.add_done_callback(lambda done: pieces.put_nowait(None) if not done.cancelled() else None)
        underway = ReplyUnderway(MODEL)
        try:
            while (piece := await pieces.get()) is not None:
                for event in underway.take(piece):
                    if request.stream:
                        yield event
            await work
        finally:
            stopped.set()
            work.cancel()
        yield underway.reply(self._clock.now())

    async def models(self) -> list[ListedModel]:
        """Return the only model, if it is installed."""
        return [ListedModel(MODEL)] if is_installed() else []

    async def close(self) -> None:
        """Unload the model, as soon as an unclosed reply is over."""
        self._thread.shutdown(wait=False)
        self._runtime = None

    def _ask(self, body: bytes, hear: Callable[[bytes], bool], stopped: Event) -> None:
        if stopped.is_set():
            return
        if self._runtime is None:
            self._runtime = self._load()
        self._runtime.ask(body, hear)

    def _load(self) -> "Runtime":
        weights = find_weights()
        if weights is None or not is_installed():
            raise ModelUnknown(f"The built-in model isn't installed. Run {INSTALL}.")
        check_weights(weights, self._checked)
        from talaria.providers.embedded.runtime import Runtime  # noqa: PLC0415 (loaded when the model is used: needs xllamacpp)

        return Runtime(weights)
