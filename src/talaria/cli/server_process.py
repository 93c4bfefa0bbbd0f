"""Process that serves until a signal stops it, the gateway or the API: its application and its service manager."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from talaria.cli.services import Services
from talaria.commands.application import Application
from talaria.core.aio import StopSignal, running_with

_MICROSECONDS = 1_000_000
_PAUSE_SECONDS = 10.0  # between messages while the process starts, if no watchdog asks for more
_START_SECONDS = 60  # how much more time to start each of them asks for


class ServiceManager:
    """Connection to the service manager that started this process, if it expects notifications, as systemd does.

    Notifications are datagrams to the socket in ``NOTIFY_SOCKET``. Nothing happens without that variable, and a
    notification that can't be sent is dropped.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        interval = environment.get("WATCHDOG_USEC", "")
        is_watched = interval.isdecimal() and environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._pause = int(interval) / _MICROSECONDS / 3 if is_watched and int(interval) else 0.0
        self._is_ready = False

    def report_ready(self, status: str) -> None:
        """Report that the process serves; later calls change the status that the service manager shows."""
        self._notify(*(() if self._is_ready else ("READY=1",)), f"STATUS={status.partition(chr(10))[0]}")
        self._is_ready = True

    async def run(self, stop: StopSignal) -> None:
        """Report that the process is alive, and when it begins to stop, until cancelled.

        A blocked event loop reports nothing, so the watchdog restarts the process. While it waits for its store, it
        asks for more time to start.
        """
        if not self._address:
            return
        is_stopping = False
        while True:
            if stop.is_set() and not is_stopping and not stop.restarts:
                self._notify("STOPPING=1")
            is_stopping = stop.is_set()
            self._notify("WATCHDOG=1", *self._request_time())
            await self._sleep(stop)

    def _request_time(self) -> tuple[str, ...]:
        return () if self._is_ready else (f"EXTEND_TIMEOUT_USEC={_START_SECONDS * _MICROSECONDS}",)

    async def _sleep(self, stop: StopSignal) -> None:
        """Wait until the next message is due, or ``stop`` is requested."""
        pause = self._pause or _PAUSE_SECONDS
        if stop.is_set():
            await asyncio.sleep(pause)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stop.wait()

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(0)
            channel.sendto("\n".join(lines).encode(), self._address)


@asynccontextmanager
async def open_server_application(
    services: Services, stop: StopSignal, signals: Mapping[signal.Signals, str]
) -> AsyncIterator[tuple[Application | None, ServiceManager]]:
    """Yield the application once the store can be used, ``None`` if ``stop`` was requested before.

    ``signals`` request the stop, each with its reason; one that is ignored, as under nohup, stays ignored. The service
    manager learns that the process is alive, not yet that it is ready.
    """
    loop = asyncio.get_running_loop()
    for number, reason in signals.items():
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop.request_stop, reason)
    manager = ServiceManager(services.environment)
    async with running_with(manager.run(stop)):
        await services.store_maintenance().wait_until_usable(stop, services.terminal.note)
        if stop.is_set():
            yield None, manager
            return
        async with AsyncExitStack() as stack:
            application = services.load_application()(stack)
            for note in application.notes:
                services.terminal.note(note)
            yield application, manager
