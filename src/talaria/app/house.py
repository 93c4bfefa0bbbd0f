"""What every conversation of a process shares: settings, store, models, and how one is opened."""

import logging
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import tzinfo
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from talaria.agent.window import WindowMemory
from talaria.app.allowances import caps_for
from talaria.app.chats import open_chat, prospect
from talaria.app.delegates import Attendance, Here, end_background, tend_background
from talaria.app.goals import goal_allowance
from talaria.app.live import LateFeeds
from talaria.app.logs import LOG_NAME, close_log, open_log
from talaria.app.models import Models
from talaria.app.overview import version
from talaria.app.processes import BackgroundProcesses
from talaria.app.racks import ProfileKnowledge, ProfileSettings
from talaria.app.secrecy import secret_values
from talaria.app.shell import LocalShell
from talaria.app.stores import open_store
from talaria.app.subcommands import load
from talaria.app.workplaces import Workplaces
from talaria.commands.house import Identity
from talaria.contracts.hooks import SESSION_START, Hooks, NoHooks, session_facts
from talaria.contracts.platform import KnownPlatforms
from talaria.contracts.schedules import JobDesk
from talaria.contracts.store import Store
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.sessions import Session
from talaria.core.ids import SessionId
from talaria.core.wording import find_zone
from talaria.goals.goal import Allowance
from talaria.sessions.chat import Chat, ChatWish
from talaria.sessions.ending import Stop
from talaria.sessions.prospect import Prospect
from talaria.sessions.seat import Emit
from talaria.settings.folder_trust import FolderTrust
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import KNOWN_SECRETS, Secrets
from talaria.tools.output import masking
from talaria.tools.workspace import for_commands

log = logging.getLogger(__name__)


class House(Struct, frozen=True, kw_only=True):
    """Implements `commands.House`; ``notes`` are sentences about the opening that the person should read.

    ``given`` is what commands get of the ``environment``.
    """

    identity: Identity
    settings_rack: ProfileSettings
    profile: Profile
    secrets: Secrets
    environment: Mapping[str, str]
    given: Mapping[str, str]
    store: Store
    models: Models
    mask: Callable[[str], str]
    shell: LocalShell
    workplaces: Workplaces
    processes: BackgroundProcesses
    feeds: LateFeeds
    attendance: Attendance
    hooks: Hooks = NoHooks()
    window_memory: WindowMemory = field(default_factory=WindowMemory)
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        """What counts for the next conversation that is opened."""
        return self.settings_rack.current

    @property
    def command_folders(self) -> tuple[Path, ...]:
        """Where commands of the person's own are: the profile's first, then those of a project that is trusted."""
        own = self.profile.folder / "commands"
        return (
            (own, Path.cwd() / ".talaria" / "commands")
            if FolderTrust(self.profile.folder).is_trusted(Path.cwd())
            else (own,)
        )

    @property
    def platforms(self) -> KnownPlatforms:
        """The networks that are known, and whether each is configured."""
        known: KnownPlatforms = load("talaria.app.platforms").known_platforms(self.settings, self.secrets)
        return known

    @property
    def zone(self) -> tzinfo | None:
        """The time zone in which times are told."""
        return find_zone(self.settings.cli.time_zone)

    def caps(self, session: Session) -> Sequence[Cap]:
        """Return what may be spent where this conversation counts."""
        return caps_for(self.settings, session)

    @property
    def knowledge(self) -> ProfileKnowledge:
        """What the agent knows and can do."""
        return ProfileKnowledge(self.settings, self.profile, Path.cwd())

    @property
    def goal_budgets(self) -> Allowance:
        """What a standing goal may take unless it says so itself."""
        return goal_allowance(self.settings.goals)

    @property
    def schedules(self) -> JobDesk:
        """The scheduled jobs."""
        networks = [name for name, is_set_up in self.platforms.items() if is_set_up]
        open_desk = load("talaria.app.schedules").open_desk
        desk: JobDesk = open_desk(self.store, self.settings, networks, self.environment)
        return desk

    async def work_off_jobs(self, only: str = "") -> int:
        """Run what is due, or what waits already for ``only`` one job; return how many runs that were."""
        count: int = await load("talaria.app.schedules").work_off_jobs(self, only)
        return count

    async def serve_gateway(self, stop: Stop, *, beside: bool, report: Callable[[str], None] = lambda _: None) -> None:
        """Serve the chat networks that are set up until ``stop``; ``beside`` lets other processes do so too."""
        await load("talaria.app.gateway").serve_gateway(self, stop, beside=beside, report=report)

    async def serve_api(
        self, stop: Stop, *, host: str, port: int | None, listens: Callable[[str], None], tell: Callable[[str], None]
    ) -> None:
        """Serve the HTTP API until ``stop``, at this place or where the settings say."""
        await load("talaria.app.api").serve_api(self, stop, host=host, port=port, listens=listens, tell=tell)

    def tend_background(self, jobs: TaskGroup, here: Here | None = None) -> Coroutine[Any, Any, None]:
        """Return what sees to the background until it is cancelled; with ``here`` to that of one conversation only."""
        return tend_background(self, jobs, here)

    async def open_chat(self, wish: ChatWish, emit: Emit, stack: AsyncExitStack, jobs: TaskGroup) -> Chat:
        """Open a conversation whose tasks belong to ``jobs``; leaving ``stack`` closes it and all it opened."""
        overheard = self.feeds.overhear(wish, self.hooks.overhear(emit), stack, jobs)
        overheard.chat = chat = await open_chat(self, wish, overheard.event, stack, jobs)
        if not wish.resume and not wish.latest:
            begun = structs.replace(wish.context, source=wish.source, session_id=chat.conversation.session_id)
            self.hooks.fire(SESSION_START, session_facts(begun))
        return chat

    async def prospect(self, wish: ChatWish) -> Prospect:
        """Return what the agent of this conversation would be, if it were opened now."""
        return await prospect(self, wish)

    def end_workplace(self, session_id: SessionId) -> bool:
        """End what a conversation that is over left running; ``False`` where there was nothing in this process."""
        end_background(self, session_id)
        return self.workplaces.end(session_id)


def open_house(
    settings: Settings, profile: Profile, secrets: Secrets, environment: Mapping[str, str], stack: AsyncExitStack
) -> House:
    """Open what conversations share; leaving ``stack`` closes it."""
    profile.prepare()
    mask = masking(secret_values(settings, secrets))
    stack.callback(close_log, open_log(profile, settings.log.level, mask, settings.log.format))
    store, notes = open_store(settings, profile)
    for note in notes:
        log.warning("%s", note)
    stack.push_async_callback(store.close)
    rack = ProfileSettings(settings, profile, environment)
    models = Models(settings, secrets, profile.folder, lambda: rack.current)
    stack.push_async_callback(models.close)
    shell = LocalShell()
    stack.callback(shell.close)
    workplaces = Workplaces()
    stack.callback(workplaces.close)
    hooks = _hooks(profile, environment)
    stack.push_async_callback(hooks.close)
    return House(
        identity=_identity(settings, profile),
        settings_rack=rack,
        profile=profile,
        secrets=secrets,
        environment=environment,
        given=for_commands(environment, [secret.name for secret in KNOWN_SECRETS]),
        store=store,
        models=models,
        mask=mask,
        shell=shell,
        workplaces=workplaces,
        processes=BackgroundProcesses(store, profile.outputs_folder, mask),
        feeds=LateFeeds(store),
        attendance=Attendance(),
        hooks=hooks,
        notes=tuple(notes),
    )


def _hooks(profile: Profile, environment: Mapping[str, str]) -> Hooks:
    """Return the hooks of a profile; what runs them is loaded only where there are some."""
    folder = profile.folder / "hooks"
    if not folder.is_dir():
        return NoHooks()
    opened: Hooks = load("talaria.hooks.running").open_hooks(folder, environment)
    return opened


def _identity(settings: Settings, profile: Profile) -> Identity:
    return Identity(
        version=version().removeprefix("talaria "),
        profile=profile.name,
        folder=profile.folder,
        store="PostgreSQL" if settings.store.url else "SQLite",
        log_file=profile.logs_folder / LOG_NAME,
    )
