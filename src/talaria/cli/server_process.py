"""Open the application for a process that serves until a signal stops it: the gateway or the API."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from talaria.cli.services import Services
from talaria.commands.application import Application
from talaria.core.aio import StopSignal


@asynccontextmanager
async def open_server_application(
    services: Services, stop: StopSignal, signals: Mapping[signal.Signals, str]
) -> AsyncIterator[Application | None]:
    """Yield the application once the store can be used, ``None`` if ``stop`` was requested before.

    ``signals`` request the stop, each with its reason; one that is ignored, as under nohup, stays ignored.
    """
    loop = asyncio.get_running_loop()
    for number, reason in signals.items():
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop.request_stop, reason)
    await services.store_maintenance().wait_until_usable(stop, services.terminal.note)
    if stop.is_set():
        yield None
        return
    async with AsyncExitStack() as stack:
        application = services.load_application()(stack)
        for note in application.notes:
            services.terminal.note(note)
        yield application
