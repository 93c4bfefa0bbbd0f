"""API server assembly: routes, keys, limits, session pools and shutdown."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

from talaria.access.api_keys import ENVIRONMENT_KEY, check_strength, create_first_key
from talaria.api.completions.routes import CompletionRoutes
from talaria.api.files import ImageStore, SentFileRoutes
from talaria.api.front_door import ApiFrontDoor, ApiKeyVerifier
from talaria.api.mcp.tools import AgentRoutes, McpRoutes, make_agent_tools, serve_over_stdio
from talaria.api.meta import MetaRoutes, ModelNames, ModelRoutes
from talaria.api.responses.response_store import store_ended_response
from talaria.api.responses.routes import ResponseRoutes
from talaria.api.runs.followers import RunFollowers
from talaria.api.runs.routes import RunRoutes
from talaria.api.runs.run_store import RunKind
from talaria.api.runs.runner import RunSessionPool, RunWorker
from talaria.api.sessions.routes import SessionRoutes
from talaria.api.turns.session_pool import SESSION_HEADER, SessionPool
from talaria.api.voice import VoiceRoutes
from talaria.app.application import TalariaApplication
from talaria.app.session.workspaces import make_served_folder
from talaria.app.settings_reload import follow_settings
from talaria.app.web import StoredSessionFiles, WebApp
from talaria.core.aio import StopSignal, SupervisedTaskGroup, run_with
from talaria.core.errors import Refused
from talaria.core.ids import new_worker_id
from talaria.http.application import HttpApplication, RequestMetrics, ServerOptions
from talaria.http.idempotency import IdempotencyStore
from talaria.http.routing import OriginPolicy, RequestLimiter, Route, Router, is_loopback
from talaria.http.server import ConnectionLimits, ServedApplication, serve_application
from talaria.runtime.workers import announced_server
from talaria.settings.profiles import FolderTrust
from talaria.tools.web.fetch import WebClient
from talaria.web.front_door import describe_web

_MEGABYTE = 1_000_000
_POLL_INTERVAL = 30.0
_KEYLESS_REFUSAL = (
    "`api.keyless` works only on loopback, but {host} is reachable from other machines. Run `talaria config unset "
    "api.keyless`, or listen on 127.0.0.1."
)

_DRAIN_NOTICE = "Running requests have {patience:g} s to finish. Press Ctrl-C again to stop now."

log = logging.getLogger(__name__)

ReportCallback = Callable[[str], None]


async def serve_api(
    app: TalariaApplication,
    stop: StopSignal,
    *,
    host: str,
    port: int | None,
    on_listening: ReportCallback,
    tell: ReportCallback,
) -> None:
    """Serve only the API until ``stop``; an empty ``host`` or ``port`` is taken from the settings.

    ``on_listening`` gets the address, ``tell`` a notice if requests are still running at shutdown.
    """
    async with SupervisedTaskGroup() as jobs, AsyncExitStack() as stack:
        app.processes.supervise_within(jobs, stack, always=True)
        stack.callback(jobs.create_task(app.supervise_background(jobs)).cancel)
        stack.callback(jobs.create_task(follow_settings(app, _log_settings)).cancel)
        serving = open_api(app, jobs, host=host, port=port, hurry=stop.hurry, tell=tell)
        on_listening(await stack.enter_async_context(serving))
        await stop.wait()


def _log_settings(text: str) -> None:
    if text:
        log.warning("settings: %s", text)


async def serve_mcp(open_application: Callable[[AsyncExitStack], TalariaApplication]) -> None:
    """Serve as an MCP server on standard input and output until the input ends, with the rights of the owner."""
    async with AsyncExitStack() as stack:
        app = open_application(stack)
        store, networks = app.store, partial(_list_networks, app)
        sessions = SessionRoutes(store, (), networks, StoredSessionFiles(app).delete).routes()
        tools = make_agent_tools((*sessions, *AgentRoutes(store, networks).routes()))
        await serve_over_stdio(tools, app.identity.version)


def _list_networks(app: TalariaApplication) -> list[str]:
    return [name for name, configured in app.platforms.items() if configured]


@asynccontextmanager
async def open_api(
    app: TalariaApplication,
    jobs: asyncio.TaskGroup,
    *,
    host: str = "",
    port: int | None = None,
    hurry: asyncio.Event | None = None,
    tell: ReportCallback | None = None,
) -> AsyncIterator[str]:
    """Serve the API within the block and yield its address.

    Raises `Refused` if ``api.keyless`` is set and the address is not loopback, or if the key from the environment is
    too weak. If the store has no key, the first one is created and written to a file of the profile. Leaving the block
    drains running requests until ``hurry`` is set or the drain time is over.
    """
    settings = app.settings.api
    host, port = host or settings.host, settings.port if port is None else port
    keyring = await _open_keyring(app, host)
    builder = _ApiBuilder(app, jobs)
    application = builder.build(keyring, host)
    for notice in builder.list_notices():
        log.warning(notice)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(builder.close)
        stack.callback(jobs.create_task(builder.serve()).cancel)
        address = await stack.enter_async_context(
            serve_application(application, host, port, jobs, builder.connection_limits)
        )
        stack.push_async_callback(builder.drain, application, hurry or asyncio.Event(), tell)
        if settings.web:
            await stack.enter_async_context(announced_server(app.store, address))
        log.info("API listening on %s", address)
        yield address


async def _open_keyring(app: TalariaApplication, host: str) -> ApiKeyVerifier:
    """Return the verifier of API keys; access without a key is decided once, for the life of the server."""
    environment_key, keyless = app.secrets.get(ENVIRONMENT_KEY) or "", app.settings.api.keyless
    if keyless and not is_loopback(host):
        raise Refused(_KEYLESS_REFUSAL.format(host=host))
    if environment_key:
        check_strength(environment_key)
    elif not keyless and await create_first_key(app.store, app.profile):
        log.info("created an API key in %s", app.profile.api_key_file)
    return ApiKeyVerifier(app.store, environment_key, keyless=keyless)


class _ApiBuilder:
    """Builder of the parts of one API server, which share one application."""

    def __init__(self, app: TalariaApplication, jobs: asyncio.TaskGroup) -> None:
        settings = app.settings.api
        folder, idle = make_served_folder(app.settings, app.profile), timedelta(seconds=settings.idle_seconds)
        self._application = app
        self._jobs = jobs
        self._folder = folder
        self._metrics = RequestMetrics()
        self._limits = RequestLimiter(settings.requests_per_minute, settings.requests_at_once)
        self._fetcher = WebClient()
        self._session_pool = SessionPool(app, jobs, folder, cap=settings.conversations, idle=idle)
        self._run_pool = RunSessionPool(app, jobs, folder, cap=settings.conversations, idle=idle)
        kinds: dict[RunKind, SessionPool] = {"run": self._run_pool, "response": self._session_pool}
        self._run_followers = RunFollowers(app.store, jobs)
        self._files = StoredSessionFiles(app)
        self._runner = RunWorker(kinds, app.store, jobs, store_ended_response)
        self._web_app = WebApp(app, jobs, folder, self._metrics, self._files) if settings.web else None

    def build(self, keyring: ApiKeyVerifier, host: str) -> ServedApplication:
        """Return the application that answers requests: the API, and the web app unless it is switched off."""
        api = self.build_application(keyring, host)
        return api if self._web_app is None else self._web_app.build_application(host, api)

    def build_application(self, keyring: ApiKeyVerifier, host: str) -> HttpApplication:
        """Return the application that answers requests."""
        settings = self._application.settings.api
        return HttpApplication(
            Router(self._build_routes()),
            ApiFrontDoor(keyring),
            IdempotencyStore(self._application.store, new_worker_id()),
            OriginPolicy(
                host, frozenset(map(str.lower, settings.hosts)), frozenset(settings.cors_origins), (SESSION_HEADER,)
            ),
            self._limits,
            self._metrics,
            ServerOptions(
                body_limit=round(settings.body_megabytes * _MEGABYTE),
                heartbeat=settings.heartbeat_seconds,
                stall=settings.stall_seconds,
            ),
        )

    @property
    def connection_limits(self) -> ConnectionLimits:
        """Return the limit on open connections and the time allowed for request heads."""
        settings = self._application.settings.api
        return ConnectionLimits(connections=settings.connections, head_seconds=settings.head_seconds)

    async def serve(self) -> None:
        """Run the run worker and the eviction of idle sessions until cancelled."""
        self._metrics.pulse.start()
        try:
            await run_with(self._runner.serve(), self._sweep())
        finally:
            self._metrics.pulse.stop()

    async def _sweep(self) -> None:
        if self._web_app is not None:
            await run_with(self._sweep_pools(), self._web_app.serve())
        else:
            await self._sweep_pools()

    async def _sweep_pools(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL)
            for conversations in (self._session_pool, self._run_pool):
                conversations.sweep()

    async def drain(self, application: ServedApplication, hurry: asyncio.Event, tell: ReportCallback | None) -> None:
        """Reject new requests and wait for running ones, at most ``gateway.drain_seconds``; then interrupt them.

        Setting ``hurry`` ends the wait at once. ``tell`` gets a notice if something is running. Interrupted turns
        resume when their session is opened again.
        """
        application.ending = True
        patience = self._application.settings.gateway.drain_seconds
        if tell is not None and (self._limits.running or len(self._runner)):
            tell(_DRAIN_NOTICE.format(patience=patience))
        waits = [self._jobs.create_task(self._wait_idle(patience)), self._jobs.create_task(hurry.wait())]
        await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self._run_followers.dismiss()
        await self._session_pool.close()

    async def _wait_idle(self, patience: float) -> None:
        if self._web_app is not None:
            await self._web_app.drain()
        await self._runner.drain(patience)
        self._run_followers.dismiss()  # clients that follow a run can reconnect later or to another server
        await self._limits.wait_until_idle()

    async def close(self) -> None:
        """Close all sessions and connections."""
        if self._web_app is not None:
            await self._web_app.close()
        await self._session_pool.close()
        await self._run_pool.close()
        await self._fetcher.close()

    async def _fetch(self, url: str) -> bytes:
        return (await self._fetcher.get(url)).body

    def list_notices(self) -> tuple[str, ...]:
        """Return notices for the owner: whether skills of the working folder are ignored, and why."""
        notice = FolderTrust(self._application.profile.folder).notice(self._folder)
        return (notice,) if notice else ()

    def _build_routes(self) -> tuple[Route, ...]:
        names = ModelNames(self._application.models, strict=self._application.settings.api.strict_models)
        pools = (self._session_pool, self._run_pool)
        pictures = ImageStore(self._application.profile.media_folder, self._fetch)
        sessions = (
            *SessionRoutes(
                self._application.store, pools, partial(_list_networks, self._application), self._files.delete
            ).routes(),
            *AgentRoutes(self._application.store, partial(_list_networks, self._application)).routes(),
        )
        routes = (
            *CompletionRoutes(self._session_pool, names, pictures).routes(),
            *ModelRoutes(names).routes(),
            *ResponseRoutes(self._session_pool, self._run_followers, names, pictures).routes(),
            *RunRoutes(self._run_followers, names, pictures).routes(),
            *VoiceRoutes(self._session_pool, self._application.settings_admin).routes(),
            *SentFileRoutes(self._application.store, self._application.profile.media_folder).routes(),
            *sessions,
            *McpRoutes(make_agent_tools(sessions), self._application.identity.version).routes(),
        )
        about = MetaRoutes(
            self._application.identity.version,
            self._metrics,
            lambda: self._limits.running,
            pools,
            self.list_notices,
            () if self._web_app is None else (describe_web(self._web_app.router.routes),),
        )
        return (*routes, *about.routes(routes))
