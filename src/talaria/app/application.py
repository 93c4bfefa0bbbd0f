"""Application context: settings, store, models and other state shared by all sessions of a process."""

import logging
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import tzinfo
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from talaria.agent.context_window import WindowMemory
from talaria.app.command_line.subcommands import format_version
from talaria.app.log_setup import LOG_NAME, close_log, open_log
from talaria.app.models import Models
from talaria.app.profile_admin import ProfileKnowledge, ProfileSettings
from talaria.app.session.agent_spec import agent_spec
from talaria.app.session.browsers import ProfileBrowsers
from talaria.app.session.build import open_session
from talaria.app.session.delegation_proxy import BackgroundRole, CurrentSession, end_background, supervise_background
from talaria.app.session.memory import open_consolidator
from talaria.app.session.secret_values import iterate_secret_values
from talaria.app.session.toolsets import list_command_folders
from talaria.app.session.workspaces import BackgroundProcesses, LocalShell, WorkspaceRegistry
from talaria.app.store import open_store
from talaria.contracts.hooks import SESSION_START, Hooks, NoHooks, session_facts
from talaria.contracts.jobs import JobService
from talaria.contracts.platform import KnownPlatforms
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Cap
from talaria.core.aio import StopSignal
from talaria.core.formatting import find_zone
from talaria.core.ids import SessionId
from talaria.goals.goal import Allowance
from talaria.runtime.agent_cache import AgentSpec
from talaria.runtime.open_session import OpenRequest, OpenSession
from talaria.runtime.questions import index_questions
from talaria.runtime.turn_environment import build_caps
from talaria.settings.model import Settings
from talaria.settings.profiles import Identity, Profile
from talaria.settings.secrets import Secrets, list_secret_names
from talaria.tools.output import SecretMask
from talaria.tools.workspace import filter_environment

if TYPE_CHECKING:  # imported with the first session that others may watch
    from talaria.runtime.live.control import WatchedTurns

log = logging.getLogger(__name__)


class TalariaApplication(Struct, frozen=True, kw_only=True):
    """Shared dependencies of a process, and the operations that open sessions and servers with them.

    ``given`` is the part of ``environment`` that commands get. ``networks`` returns everything that messages can be
    sent to. ``notes`` are messages about opening the store, for the user.
    """

    identity: Identity
    settings_admin: ProfileSettings
    profile: Profile
    secrets: Secrets
    environment: Mapping[str, str]
    given: Mapping[str, str]
    store: Store
    models: Models
    mask: SecretMask
    shell: LocalShell
    workspaces: WorkspaceRegistry
    processes: BackgroundProcesses
    browsers: ProfileBrowsers
    watched_turns: Callable[[], "WatchedTurns"]
    networks: Callable[[], tuple[str, ...]]
    background_role: BackgroundRole
    hooks: Hooks = NoHooks()
    window_memory: WindowMemory = field(default_factory=WindowMemory)
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        """The settings in force, used for the next session that is opened."""
        return self.settings_admin.current

    @property
    def command_folders(self) -> tuple[Path, ...]:
        """The folders with custom commands: the profile's, then the project's if that folder is trusted."""
        return list_command_folders(self.profile, Path.cwd())

    @property
    def platforms(self) -> KnownPlatforms:
        """The known networks, and whether each is configured."""
        from talaria.app.platforms import build_known_platforms  # noqa: PLC0415 (loaded when networks are listed)

        return build_known_platforms(self.settings, self.secrets)

    @property
    def zone(self) -> tzinfo | None:
        """The time zone in which times are shown."""
        return find_zone(self.settings.cli.time_zone)

    def caps(self, session: Session) -> Sequence[Cap]:
        """Return the cost caps that apply to this session."""
        return build_caps(self.settings.budget, session)

    @property
    def knowledge(self) -> ProfileKnowledge:
        """The toolsets, skills, memory and personalities of the profile and the current folder."""
        consolidator = partial(open_consolidator, self.settings, self.profile, self.store, self.models)
        return ProfileKnowledge(
            self.settings, self.profile, Path.cwd(), self.environment, consolidator, self.settings_admin.reload
        )

    @property
    def goal_budgets(self) -> Allowance:
        """The default budget of a goal."""
        from talaria.app.session.goals import build_goal_allowance  # noqa: PLC0415 (loaded when a goal is set)

        return build_goal_allowance(self.settings.goals)

    @property
    def schedules(self) -> JobService:
        """The scheduled jobs."""
        from talaria.app.jobs import open_job_service  # noqa: PLC0415 (loaded when jobs are used)

        networks = [name for name, is_set_up in self.platforms.items() if is_set_up]
        return open_job_service(self.store, self.settings, networks, self.environment)

    async def run_due_jobs(self, only: str = "") -> int:
        """Run due jobs, or with ``only`` the pending runs of one job; return the number of runs."""
        from talaria.app.jobs import run_due_jobs  # noqa: PLC0415 (loaded when jobs are run)

        return await run_due_jobs(self, only)

    async def serve_gateway(
        self, stop: StopSignal, *, as_worker: bool, report: Callable[[str], None] = lambda _: None
    ) -> None:
        """Serve the configured chat networks until ``stop``; ``as_worker`` allows other gateway processes."""
        from talaria.app.gateway.build import serve_gateway  # noqa: PLC0415 (loaded for the gateway)

        await serve_gateway(self, stop, as_worker=as_worker, report=report)

    async def serve_api(
        self,
        stop: StopSignal,
        *,
        host: str,
        port: int | None,
        on_listening: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        """Serve the HTTP API until ``stop``; an empty ``host`` or ``port`` is taken from the settings."""
        from talaria.app.api import serve_api  # noqa: PLC0415 (loaded for the API)

        await serve_api(self, stop, host=host, port=port, on_listening=on_listening, tell=tell)

    def supervise_background(self, jobs: TaskGroup, here: CurrentSession | None = None) -> Coroutine[Any, Any, None]:
        """Return a coroutine that supervises background work until cancelled; ``here`` limits it to one session."""
        return supervise_background(self, jobs, here)

    async def open_session(self, request: OpenRequest, stack: AsyncExitStack, jobs: TaskGroup) -> OpenSession:
        """Open a session whose tasks belong to ``jobs``; leaving ``stack`` closes it and all it opened."""
        after_close = await stack.enter_async_context(AsyncExitStack())
        chat = await open_session(self, request, stack, jobs)
        has_hooks = not isinstance(self.hooks, NoHooks)
        if has_hooks and (subscriber := self.hooks.turn_subscriber()) is not None:
            chat.events.subscribe(subscriber)
        index_questions(self.store, chat.conversation.session_id, chat.questions, chat.events.subscribe, jobs)
        if request.surface.watchable:
            self.watched_turns().add_session(chat, after_close, jobs, request.surface.on_moved)
        if has_hooks and request.session is None:
            surface, session_id = request.surface, chat.conversation.session_id
            started = structs.replace(surface.context, source=surface.source, session_id=session_id)
            self.hooks.fire(SESSION_START, session_facts(started))
        return chat

    async def agent_spec(self, request: OpenRequest) -> AgentSpec:
        """Return the agent specification that this session would get if it were opened now."""
        return await agent_spec(self, request)

    def end_workspace(self, session_id: SessionId) -> bool:
        """End background work and workspace of a finished session; return whether this process had the workspace."""
        end_background(self, session_id)
        return self.workspaces.end(session_id)


def open_application(
    settings: Settings, profile: Profile, secrets: Secrets, environment: Mapping[str, str], stack: AsyncExitStack
) -> TalariaApplication:
    """Open the shared application context; leaving ``stack`` closes it."""
    profile.prepare()
    mask = SecretMask(iterate_secret_values(settings, secrets))
    stack.callback(close_log, open_log(profile, settings.log.level, mask, settings.log.format))
    store, notes = open_store(settings, profile)
    for note in notes:
        log.warning("%s", note)
    stack.push_async_callback(store.close)
    admin = ProfileSettings(settings, profile, environment)
    models = Models(settings, secrets, profile.folder, lambda: admin.current, on_secrets=mask.add)
    stack.push_async_callback(models.close)
    shell = LocalShell()
    stack.callback(shell.close)
    workspaces = WorkspaceRegistry()
    stack.callback(workspaces.close)
    browsers = ProfileBrowsers(profile, lambda: admin.current, environment)
    stack.push_async_callback(browsers.close)
    hooks = _open_hooks(profile, environment)
    stack.push_async_callback(hooks.close)
    return TalariaApplication(
        identity=_build_identity(settings, profile),
        settings_admin=admin,
        profile=profile,
        secrets=secrets,
        environment=environment,
        given=filter_environment(environment, list_secret_names()),
        store=store,
        models=models,
        mask=mask,
        shell=shell,
        workspaces=workspaces,
        processes=BackgroundProcesses(store, profile.outputs_folder, mask),
        browsers=browsers,
        watched_turns=cache(partial(_make_watched_turns, store)),
        networks=_make_networks(admin, secrets),
        background_role=BackgroundRole(),
        hooks=hooks,
        notes=tuple(notes),
    )


def _make_watched_turns(store: Store) -> "WatchedTurns":
    from talaria.runtime.live.control import WatchedTurns  # noqa: PLC0415 (loaded when turns may be watched)

    return WatchedTurns(store)


def _make_networks(admin: ProfileSettings, secrets: Secrets) -> Callable[[], tuple[str, ...]]:
    """Return a function that looks for networks again only after settings or secrets have been replaced."""
    settings: Settings | None = None
    stored: object = None
    found: tuple[str, ...] = ()

    def list_networks() -> tuple[str, ...]:
        from talaria.app.platforms import list_reachable_platforms  # noqa: PLC0415 (loaded with the first session)

        nonlocal settings, stored, found
        if settings is not admin.current or stored is not secrets.stored:
            settings, stored = admin.current, secrets.stored
            found = tuple(list_reachable_platforms(settings, secrets))
        return found

    return list_networks


def _open_hooks(profile: Profile, environment: Mapping[str, str]) -> Hooks:
    """Return the hooks of a profile; the dispatcher is imported only if there is a hooks folder."""
    folder = profile.folder / "hooks"
    if not folder.is_dir():
        return NoHooks()
    from talaria.hooks.dispatcher import open_hooks  # noqa: PLC0415 (loaded when there are hooks)

    return open_hooks(folder, environment)


def _build_identity(settings: Settings, profile: Profile) -> Identity:
    return Identity(
        version=format_version().removeprefix("talaria "),
        profile=profile.name,
        folder=profile.folder,
        store="PostgreSQL" if settings.store.url else "SQLite",
        log_file=profile.logs_folder / LOG_NAME,
    )
