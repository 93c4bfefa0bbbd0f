"""Put the API server together over one house."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from talaria.api.about import About
from talaria.api.application import Application, Manner
from talaria.api.completions.routes import Completions
from talaria.api.connection import ConnectionLimits
from talaria.api.conversations import Conversations
from talaria.api.figures import Figures
from talaria.api.hosts import Hosts, is_loopback
from talaria.api.idempotency import Repetitions
from talaria.api.keys import Keyring
from talaria.api.limits import Limits
from talaria.api.models import ModelNames, ModelRoutes
from talaria.api.pictures import Pictures
from talaria.api.responses.background import keep_ended
from talaria.api.responses.routes import ResponseRoutes
from talaria.api.router import Route, Router
from talaria.api.runs.following import Audience
from talaria.api.runs.keeping import RunKind
from talaria.api.runs.routes import RunRoutes
from talaria.api.runs.working import RunConversations, Runner
from talaria.api.serving import served
from talaria.api.sessions.routes import SessionRoutes
from talaria.app.folders import served_folder
from talaria.app.house import House
from talaria.app.live_settings import follow_settings
from talaria.core.errors import Refused
from talaria.core.ids import SessionId, is_id, new_worker_id
from talaria.gateway.shelter import Shelter
from talaria.sessions.api_keys import ENVIRONMENT_KEY, check_strength
from talaria.sessions.company import accompanied
from talaria.sessions.ending import Stop
from talaria.settings.api_key_file import create_first_key
from talaria.tools.output import FullOutputs
from talaria.tools.web.client import WebClient

_MEGABYTE = 1_000_000
_LOOK_AGAIN = 30.0
_KEYLESS_ELSEWHERE = (
    "`api.keyless` works on loopback only, and others can reach {host}: run `talaria config unset api.keyless`, or"
    " listen at 127.0.0.1."
)

_ENDING = "What is being worked on has {patience:g} s to come to its end; Ctrl-C again cuts it off."

log = logging.getLogger(__name__)

Tell = Callable[[str], None]


async def serve_api(house: House, stop: Stop, *, host: str, port: int | None, listens: Tell, tell: Tell) -> None:
    """Serve the API alone until ``stop``; without ``host`` and ``port`` where the settings say.

    ``listens`` hears the address, ``tell`` what there is to know at the end.
    """
    async with Shelter() as jobs, AsyncExitStack() as stack:
        house.processes.attend(jobs, stack, always=True)
        stack.callback(jobs.create_task(house.tend_background(jobs)).cancel)
        stack.callback(jobs.create_task(follow_settings(house, _warn_of_settings)).cancel)
        serving = api_served(house, jobs, host=host, port=port, hurry=stop.hurry, tell=tell)
        listens(await stack.enter_async_context(serving))
        await stop.wait()


def _warn_of_settings(text: str) -> None:
    if text:
        log.warning("settings: %s", text)


@asynccontextmanager
async def api_served(
    house: House,
    jobs: asyncio.TaskGroup,
    *,
    host: str = "",
    port: int | None = None,
    hurry: asyncio.Event | None = None,
    tell: Tell | None = None,
) -> AsyncIterator[str]:
    """Serve the API within the block, and give its address; raises `Refused` where that would be open to all.

    Where there is no key yet, the first one is created and stored in a file of the profile. At the end of the block
    what is being worked on may come to its end, unless there is a ``hurry``.
    """
    settings = house.settings.api
    host, port = host or settings.host, settings.port if port is None else port
    keyring = await _open_keyring(house, host)
    parts = _Parts(house, jobs)
    application = parts.application(keyring, host)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(parts.close)
        stack.callback(jobs.create_task(parts.serve()).cancel)
        address = await stack.enter_async_context(served(application, host, port, jobs, parts.connection_limits))
        stack.push_async_callback(parts.drain, application, hurry or asyncio.Event(), tell)
        log.info("the API listens at %s", address)
        yield address


async def _open_keyring(house: House, host: str) -> Keyring:
    """Return the keys that are accepted; what is allowed without one is decided here, for as long as it serves."""
    given, keyless = house.secrets.get(ENVIRONMENT_KEY) or "", house.settings.api.keyless
    if keyless and not is_loopback(host):
        raise Refused(_KEYLESS_ELSEWHERE.format(host=host))
    if given:
        check_strength(given)
    elif not keyless and await create_first_key(house.store, house.profile):
        log.info("an API key was created; it is in %s", house.profile.api_key_file)
    return Keyring(house.store, given, keyless=keyless)


class _Parts:
    """Makes the parts of one API server, all of them over the same house."""

    def __init__(self, house: House, jobs: asyncio.TaskGroup) -> None:
        settings = house.settings.api
        folder, idle = served_folder(house.settings, house.profile), timedelta(seconds=settings.idle_seconds)
        self._house = house
        self._jobs = jobs
        self._figures = Figures()
        self._limits = Limits(settings.requests_per_minute, settings.requests_at_once)
        self._web = WebClient()
        self._conversations = Conversations(house, jobs, folder, cap=settings.conversations, idle=idle)
        self._run_conversations = RunConversations(house, jobs, folder, cap=settings.conversations, idle=idle)
        kinds: dict[RunKind, Conversations] = {"run": self._run_conversations, "response": self._conversations}
        self._audience = Audience(house.store)
        self._runner = Runner(kinds, house.store, jobs, keep_ended)

    def application(self, keyring: Keyring, host: str) -> Application:
        """Return what answers requests."""
        settings = self._house.settings.api
        return Application(
            Router(self._routes()),
            keyring,
            Repetitions(self._house.store, new_worker_id()),
            Hosts(host, frozenset(map(str.lower, settings.hosts)), frozenset(settings.cors_origins)),
            self._limits,
            self._figures,
            Manner(
                body_limit=round(settings.body_megabytes * _MEGABYTE),
                heartbeat=settings.heartbeat_seconds,
                stall=settings.stall_seconds,
            ),
        )

    @property
    def connection_limits(self) -> ConnectionLimits:
        """Return how many connections are accepted, and how fast requests have to come."""
        settings = self._house.settings.api
        return ConnectionLimits(connections=settings.connections, head_seconds=settings.head_seconds)

    async def serve(self) -> None:
        """Do what goes on beside requests, until cancelled."""
        self._figures.pulse.start()
        try:
            await accompanied(self._runner.serve(), self._sweep())
        finally:
            self._figures.pulse.stop()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            for conversations in (self._conversations, self._run_conversations):
                conversations.sweep()

    async def drain(self, application: Application, hurry: asyncio.Event, tell: Tell | None) -> None:
        """Take nothing new, and let what is being worked on come to its end for a while; cut off what does not.

        A turn that is cut off goes on with its conversation; whoever waits for it is told.
        """
        application.ending = True
        patience = self._house.settings.gateway.drain_seconds
        if tell is not None and (self._limits.running or len(self._runner)):
            tell(_ENDING.format(patience=patience))
        waits = [self._jobs.create_task(self._rest(patience)), self._jobs.create_task(hurry.wait())]
        await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self._audience.dismiss()
        await self._conversations.close()

    async def _rest(self, patience: float) -> None:
        await self._runner.drain(patience)
        self._audience.dismiss()  # whoever follows a run goes on elsewhere, or later
        await self._limits.rest()

    async def close(self) -> None:
        """Let go of every conversation."""
        await self._conversations.close()
        await self._run_conversations.close()
        await self._web.close()

    async def _fetched(self, url: str) -> bytes:
        return (await self._web.get(url)).body

    def _networks(self) -> list[str]:
        return [name for name, configured in self._house.platforms.items() if configured]

    def _forget(self, session_id: SessionId) -> None:
        """Remove what a deleted conversation has left behind outside of the store."""
        self._house.end_workplace(session_id)
        FullOutputs(self._house.profile.outputs_folder).forget(session_id)
        if is_id(session_id):
            shutil.rmtree(self._house.profile.media_folder / session_id, ignore_errors=True)

    def _routes(self) -> tuple[Route, ...]:
        names = ModelNames(self._house.models)
        every = (self._conversations, self._run_conversations)
        pictures = Pictures(self._house.profile.media_folder, self._fetched)
        routes = (
            *Completions(self._conversations, names, pictures).routes(),
            *ModelRoutes(names).routes(),
            *ResponseRoutes(self._conversations, self._audience, names, pictures).routes(),
            *RunRoutes(self._audience, names, pictures).routes(),
            *SessionRoutes(self._house.store, every, self._networks, self._forget).routes(),
        )
        about = About(self._house.identity.version, self._figures, lambda: self._limits.running, every)
        return (*routes, *about.routes(routes))
