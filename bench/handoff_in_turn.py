"""Delay until a session handed off during a turn appears in its new chat with the text so far."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.gateway_home import prepare_home, start_gateway
from bench.measure import Measurement
from talaria.app.application import open_application
from talaria.contracts.platform import PlatformCapabilities
from talaria.core.addresses import Address
from talaria.core.events import TextAdded, TurnEvent
from talaria.core.messages import Text
from talaria.handoff.service import request_handoff_to
from talaria.runtime.active_session import ActiveSession
from talaria.runtime.open_session import OpenRequest, SurfaceInfo
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres

NAME = "handoff-in-turn"
_ABILITIES = PlatformCapabilities(text_limit=4096, threads=True, edits=True, idempotent=True)
_HOME = Address("loopback", "home")
_REPLY = "word " * 60
_GOAL = 250


def run(quick: bool) -> list[Measurement]:
    """Measure with SQLite, and with PostgreSQL if it is installed."""
    rounds = 5 if quick else 25
    measurements = asyncio.run(_measure("SQLite", "", rounds))
    if find_postgres() is None:
        print(MISSING)
        return measurements
    with PostgresServer() as server:
        return measurements + asyncio.run(_measure("PostgreSQL", server.url, rounds))


async def _measure(engine: str, url: str, rounds: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
            server.answering(lambda _: Say(_REPLY, pause=0.03))
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES, server=url, lease=15.0)
            gateway = await start_gateway(environment)
            try:
                await network.until(lambda: network.receivers == 1, seconds=30)
                times = [await _time_handoff(Path(folder), environment, network) for _ in range(rounds)]
            finally:
                gateway.terminate()
                await gateway.wait()
    first_delay, text_delay = (median(one) * 1000 for one in zip(*times, strict=True))
    return [
        Measurement(
            f"{engine}: from request to the first post in the new chat, median of {rounds}", first_delay, "ms", _GOAL
        ),
        Measurement(f"{engine}: from request to the text so far, median", text_delay, "ms", 2 * _GOAL),
    ]


async def _time_handoff(home: Path, environment: dict[str, str], network: LoopbackNetwork) -> tuple[float, float]:
    """Hand off one session; return the seconds until the first post and until text of the reply."""
    profile = Profiles(home).active()
    streaming, before = asyncio.Event(), len(network.posts)

    def emit(event: TurnEvent) -> None:
        if isinstance(event, TextAdded):
            streaming.set()

    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        settings, secrets = load_settings(profile, environment), read_secrets(profile, environment)
        application = open_application(settings, profile, secrets, environment, stack)
        request = OpenRequest(surface=SurfaceInfo(source="cli", folder=home, lasting=True), titled=False)
        active_session = ActiveSession(application, request, emit, jobs)
        stack.push_async_callback(active_session.close)
        await active_session.open()
        await active_session.put(Text("Go on for a while."))
        await streaming.wait()
        await asyncio.sleep(0.5)
        began = perf_counter()
        await application.store.write(
            lambda tx: request_handoff_to(tx, active_session.session_id, _HOME, immediate=True)
        )
        await network.until(lambda: len(network.posts) > before, seconds=20)
        first_delay = perf_counter() - began
        await network.until(lambda: any("word word" in post.text for post in network.posts[before:]), seconds=20)
        text_delay = perf_counter() - began
        await active_session.chat.conversation.wait_until_idle()
    return first_delay, text_delay
