"""Web app assembly: its routes, live hub, open conversations and shutdown, next to the API on one server."""

import asyncio
import re
import shutil
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from talaria.app.application import TalariaApplication
from talaria.app.media_models import MediaModels
from talaria.app.models import ProfileModels
from talaria.app.settings_reload import reload_settings
from talaria.app.setup.probes import ProfileSetup
from talaria.contracts.mcp import ServerState
from talaria.core.errors import Refused, StoreError, TalariaError
from talaria.core.ids import SessionId, is_id, new_worker_id
from talaria.gateway.outbound.delivery import Delivery
from talaria.handoff.worker import HandoffWorker
from talaria.http.application import HttpApplication, RequestMetrics, ServerOptions
from talaria.http.errors import Problem
from talaria.http.idempotency import IdempotencyStore
from talaria.http.routing import OriginPolicy, Receive, Reply, RequestLimiter, Route, Router, Scope, Send
from talaria.http_client.client import HttpPool
from talaria.runtime.turn_environment import build_monthly_caps
from talaria.tools.output import FullOutputs, make_readable
from talaria.web.assets import SECURITY_HEADERS, Assets
from talaria.web.changes import PageChannels, SessionListWatcher
from talaria.web.conversations import WebConversations, follow_pending_work
from talaria.web.files import WebFiles
from talaria.web.front_door import WebFrontDoor
from talaria.web.hub import LiveHub
from talaria.web.notifications import Notifier, PushSender, WebNotification, follow_pairing
from talaria.web.platform import WebHandoffTarget, WebPlatform
from talaria.web.routes.background import AgentBrowserRoutes, BackgroundRoutes
from talaria.web.routes.browsers import PushRoutes, SignInRoutes
from talaria.web.routes.chat import ChatRoutes
from talaria.web.routes.files import FileRoutes
from talaria.web.routes.gateway import GatewayRoutes
from talaria.web.routes.goals import GoalRoutes
from talaria.web.routes.home import HomeRoutes
from talaria.web.routes.inside import CheckFinding, CheckView, InsideRoutes, TraceRoutes
from talaria.web.routes.model_choice import ModelChoiceRoutes
from talaria.web.routes.people import PeopleRoutes
from talaria.web.routes.schedules import ScheduleRoutes
from talaria.web.routes.sessions import SessionFiles, SessionListRoutes
from talaria.web.routes.settings import SettingsRoutes
from talaria.web.routes.stream import StreamRoutes, end_revoked_streams
from talaria.web.routes.tools import ToolRoutes
from talaria.web.routes.usage import UsageRoutes
from talaria.web.session_views import set_home
from talaria.web.web_commands import WebCommands

_BODY_LIMIT = 2_000_000
_MEGABYTE = 1_000_000
_HEARTBEAT = 15.0  # the page reconnects after 40 s of silence
_OUTPUT_NAME = re.compile(r"[\w-]+\.txt")
_LONGEST_OUTPUT = 2_000_000
_CHECKS_OF_TERMINALS = frozenset({"terminal"})


class WebApp:
    """The parts of the web app in one server, which share one application."""

    def __init__(
        self,
        app: TalariaApplication,
        jobs: asyncio.TaskGroup,
        folder: Path,
        metrics: RequestMetrics,
        files: SessionFiles,
    ) -> None:
        settings = app.settings.api
        self._app = app
        self._jobs = jobs
        self._assets = Assets()
        self._metrics = metrics
        self._limits = RequestLimiter(settings.requests_per_minute, settings.requests_at_once)
        self._front_door = WebFrontDoor(app.store, lambda: app.settings)
        self._files = files
        self._hub = LiveHub(app.store, jobs)
        self._session_list = SessionListWatcher(app.store, self._hub)
        self._pages = PageChannels(app.store, self._hub, jobs, app.identity.log_file)
        self._web_files = WebFiles(app.profile.media_folder)
        self._media_models = MediaModels(app)
        self._http = HttpPool()
        self._push = self._open_push()
        self._notifier = notifier = Notifier(self._hub, self._push.send if self._push is not None else _push_nothing)
        self._conversations = WebConversations(app, self._hub, notifier, jobs, folder, settings.idle_seconds)
        self._commands = WebCommands(app, self._conversations)
        platform = WebPlatform(app.store, notifier, self._on_delivered)
        self._delivery = Delivery(app.store, platform, settings=app.settings_admin, files=app.profile.media_folder)
        self._handoffs = HandoffWorker(
            app.store, WebHandoffTarget(self._conversations, jobs, self._session_list.check_soon)
        )
        self.router = Router(self._build_routes())

    def _open_push(self) -> PushSender | None:
        if find_spec("cryptography") is None:
            return None
        key_file = self._app.profile.folder / "push-key.pem"
        return PushSender(self._app.store, key_file, self._http.send, lambda: self._app.settings.api.push_hosts)

    def build_application(self, host: str, api: HttpApplication) -> "CombinedApplication":
        """Return the application that answers requests to the web app and to the API."""
        settings = self._app.settings.api
        web = HttpApplication(
            self.router,
            self._front_door,
            IdempotencyStore(self._app.store, new_worker_id()),
            OriginPolicy(host, frozenset(map(str.lower, settings.hosts))),
            self._limits,
            self._metrics,
            ServerOptions(
                body_limit=_BODY_LIMIT,
                heartbeat=min(settings.heartbeat_seconds, _HEARTBEAT),
                stall=settings.stall_seconds,
                headers={"cache-control": "no-store", **SECURITY_HEADERS},
            ),
        )
        return CombinedApplication(
            api, web, frozenset({"web", "assets", "sw.js", *(p[1:] for p in self._assets.page_paths)})
        )

    async def serve(self) -> None:
        """Do pending work, deliver, follow changes and close idle conversations until cancelled."""
        store = self._app.store
        with suppress(StoreError):
            await store.write(set_home)
        await asyncio.to_thread(self._web_files.clean)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._session_list.follow())
            group.create_task(end_revoked_streams(store, self._hub))
            group.create_task(self._delivery.serve())
            group.create_task(self._handoffs.serve())
            group.create_task(follow_pairing(store, self._notifier))
            await follow_pending_work(store, self._conversations)

    def _on_delivered(self, session_id: SessionId) -> None:
        self._hub.send_delivered(session_id)
        self._session_list.check_soon()

    async def drain(self) -> None:
        """End all streams, and wait for running turns."""
        self._hub.end_streams()
        await self._conversations.wait_until_idle()

    async def close(self) -> None:
        """Close all streams and conversations."""
        self._hub.close()
        self._pages.close()
        await self._conversations.close()
        await self._media_models.close()
        await self._http.close()

    async def _transcribe(self, file: Path, media_type: str) -> str:
        transcriber = self._media_models.transcriber()
        if transcriber is None:
            raise Refused("Transcription isn't set up. Set voice.transcribe.")
        async with asyncio.timeout(self._app.settings.voice.seconds):
            return await transcriber.transcribe(file, media_type)

    async def _find_default_model(self) -> str:
        try:
            return (await self._app.models.resolve_default_model()).model
        except TalariaError:
            return ""

    def _examine(self) -> list[CheckView]:
        """Run the checks of the doctor, without a request to the model's provider; blocks, and masks secrets."""
        from talaria.app.command_line.services import ProcessServices  # noqa: PLC0415 (loaded when the checks are run)
        from talaria.cli.commands.doctor.command import OFFLINE_CHECKS, examine  # noqa: PLC0415 (the same)

        app = self._app
        services = ProcessServices(profile_name=app.profile.name, color="never", environment=app.environment)
        checks = (check for check in OFFLINE_CHECKS if check.name not in _CHECKS_OF_TERMINALS)
        results = [examine(check, services, fix=False) for check in checks]
        return [
            CheckView(
                result.name,
                result.state,
                [CheckFinding(one.state, app.mask(one.found), app.mask(one.repair)) for one in result.findings],
            )
            for result in results
        ]

    def _build_routes(self) -> tuple[Route, ...]:
        store, limit = self._app.store, round(self._app.settings.media.file_megabytes * _MEGABYTE)
        sign_in = SignInRoutes(
            store,
            self._app.identity.version,
            self._assets.digest,
            self._commands.commands,
            self._find_default_model,
            lambda: bool(self._app.settings.voice.transcribe),
        )
        return (
            *self._assets.routes(),
            *sign_in.routes(),
            *SessionListRoutes(store, self._conversations, self._session_list, self._files, self._web_files).routes(),
            *ChatRoutes(store, self._conversations, self._commands, self._session_list, self._web_files).routes(),
            *FileRoutes(store, self._web_files, limit, self._transcribe).routes(),
            *PushRoutes(store, self._push).routes(),
            *HomeRoutes(store, lambda: self._app.schedules).routes(),
            *UsageRoutes(store, lambda person: build_monthly_caps(self._app.settings.budget, person)).routes(),
            *BackgroundRoutes(store).routes(),
            *AgentBrowserRoutes(store, self._app.browsers).routes(),
            *GatewayRoutes(store).routes(),
            *InsideRoutes(self._app.identity.log_file, self._examine).routes(),
            *TraceRoutes(store).routes(),
            *GoalRoutes(store, self._conversations).routes(),
            *ScheduleRoutes(store, lambda: self._app.schedules, self._app.run_due_jobs, self._jobs).routes(),
            *build_management_routes(self._app),
            *StreamRoutes(store, self._hub, self._pages, self._session_list, self._assets.digest).routes(),
        )


async def _push_nothing(person: str, notification: WebNotification) -> None:
    """Do nothing."""


class CombinedApplication:
    """The API and the web app behind one address: the first part of the path decides."""

    def __init__(self, api: HttpApplication, web: HttpApplication, web_parts: frozenset[str]) -> None:
        self._api = api
        self._web = web
        self._web_parts = web_parts

    @property
    def ending(self) -> bool:
        """Return whether new requests are refused."""
        return self._api.ending

    @ending.setter
    def ending(self, value: bool) -> None:
        self._api.ending = self._web.ending = value

    def render_problem(self, problem: Problem) -> Reply:
        """Return an error that concerns the connection, in the format of the API."""
        return self._api.render_problem(problem)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Serve one request."""
        before, _, part = scope.get("path", "/").partition("/")
        is_web = not before and part.partition("/")[0] in self._web_parts  # the path of `OPTIONS *` has no slash
        return (self._web if is_web else self._api)(scope, receive, send)


def build_management_routes(app: TalariaApplication) -> tuple[Route, ...]:
    """Return the routes of the pages with which the agent is managed."""
    reload = partial(reload_settings, app)
    models = ModelChoiceRoutes(
        app.models,
        ProfileSetup(app.profile, app.environment),
        app.profile,
        app.environment,
        reload=reload,
        install=ProfileModels(app.settings, app.secrets, app.profile.folder).install_embedded,
    )
    return (
        *PeopleRoutes(app.store, app, app.profile).routes(),
        *SettingsRoutes(app.profile, app.environment, reload).routes(),
        *models.routes(),
        *ToolRoutes(app, partial(_try_mcp_server, app)).routes(),
    )


async def _try_mcp_server(app: TalariaApplication, name: str) -> ServerState:
    """Connect to a server of the settings, list what it offers and disconnect."""
    from talaria.app.session.mcp_servers import try_server  # noqa: PLC0415 (loaded when a server is tested)

    return await try_server(name, app.settings.mcp[name], app.secrets, app.profile)


class StoredSessionFiles:
    """Files of the sessions of one profile; implements `SessionFiles` of the web app."""

    def __init__(self, app: TalariaApplication) -> None:
        self._app = app
        self._outputs = FullOutputs(app.profile.outputs_folder)

    def delete(self, session_id: SessionId) -> None:
        """Delete the workspace and the files of a deleted session."""
        self._app.end_workspace(session_id)
        self._outputs.forget(session_id)
        if is_id(session_id):
            shutil.rmtree(self._app.profile.media_folder / session_id, ignore_errors=True)

    def read_output(self, session_id: SessionId, file_name: str) -> str | None:
        """Return the stored output of a tool, without secrets; ``None`` if there is none with this name."""
        file = self._outputs.find_folder(session_id) / file_name
        if not _OUTPUT_NAME.fullmatch(file_name) or not file.is_file():
            return None
        with file.open("rb") as stored:
            return self._app.mask(make_readable(stored.read(_LONGEST_OUTPUT)))
