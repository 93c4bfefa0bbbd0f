"""Gateway assembly: account locks, receivers, chats, deliveries, background services and shutdown reports."""

import asyncio
import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from talaria.access.policy import may_speak
from talaria.app.application import TalariaApplication
from talaria.app.gateway.media import open_media
from talaria.app.platforms import account_secret, find_network, list_enabled_platforms, open_platform
from talaria.app.session.workspaces import make_served_folder
from talaria.app.settings_reload import follow_settings
from talaria.commands.command import Command, select_usable_commands
from talaria.commands.registry import REGISTRY, load_own_commands
from talaria.contracts.hooks import GATEWAY_START, Facts
from talaria.contracts.platform import Platform, PlatformAccount, Sender
from talaria.core.addresses import Address, audience_of
from talaria.core.aio import StopSignal, SupervisedTaskGroup, first_error
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId, WorkerId, new_worker_id
from talaria.gateway.admission import find_chat_owner
from talaria.gateway.chats.chat import Chat, NetworkContext
from talaria.gateway.chats.registry import ChatRegistry, CompletionDispatcher
from talaria.gateway.dispatcher import Dispatcher, ForwardingWorker
from talaria.gateway.handoff_target import GatewayHandoffTarget
from talaria.gateway.outbound.delivery import Delivery
from talaria.gateway.outbound.preview import PreviewOptions
from talaria.gateway.receiver import DirectorySync, OutageNotices, Receiver
from talaria.gateway.rooms import GROUP_INSTRUCTIONS, ROOM_INSTRUCTIONS
from talaria.gateway.session_reset import MemoryFlusher
from talaria.gateway.status_server import StatusServer
from talaria.gateway.supervisor import (
    GatewaySupervisor,
    NetworkPipeline,
    RestartControl,
    announce_restart,
    follow_restart_requests,
)
from talaria.handoff.worker import HandoffWorker
from talaria.hooks.boot import Boot, read_boot
from talaria.observability.shutdown_report import (
    finish_report,
    record_last_report,
    running_mark,
    start_report,
    write_report,
)
from talaria.runtime.agent_cache import AgentSpec
from talaria.runtime.open_session import OpenRequest, ResumeSession, SurfaceInfo
from talaria.runtime.turns import TurnOptions
from talaria.runtime.workers import NetworkStatus
from talaria.settings.profiles import FolderTrust
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS, ChatNetworkSettings, find_room


def lock_account(folder: Path, name: str, secrets: Sequence[str], store: str, stack: AsyncExitStack) -> None:
    """Lock an account until ``stack`` ends; raises `Refused` while a gateway with another store holds it.

    ``folder`` contains the lock files. Workers with the same ``store`` share the lock; the store decides which of them
    receives.
    """
    digest = hashlib.sha256("\0".join([name, *secrets]).encode()).hexdigest()[:24]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / f"{name}-{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, lock)
    own_digest = hashlib.sha256(store.encode()).hexdigest()
    _write_holder(lock, own_digest)
    holder, _, pid = os.pread(lock, 200, 0).decode().partition(" ")
    if holder != own_digest:
        fcntl.flock(lock, fcntl.LOCK_UN)
        raise Refused(
            f"{name}: the gateway of another profile (process {pid.strip()}) already uses this account. Stop that"
            " gateway, or use another account for this profile."
        )


def _write_holder(lock: int, own_digest: str) -> None:
    """Write our digest if the lock is free, then share the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{own_digest} {os.getpid()}\n".encode(), 0)
    fcntl.flock(lock, fcntl.LOCK_SH)  # waits only while another process holds the lock exclusively to write


def fire_gateway_start(application: TalariaApplication, worker: WorkerId, lines: Sequence[NetworkPipeline]) -> None:
    """Fire the hook event for a gateway that has started."""
    facts: Facts = {
        "worker": worker,
        "pid": os.getpid(),
        "version": application.identity.version,
        "profile": application.profile.name,
        "platforms": " ".join(line.network.status.name for line in lines),
    }
    application.hooks.fire(GATEWAY_START, facts)


async def run_boot(
    application: TalariaApplication, folder: Path, lines: Sequence[NetworkPipeline], jobs: asyncio.TaskGroup
) -> None:
    """Run the instructions in BOOT.md."""
    text = await asyncio.to_thread(read_boot, application.profile.folder)
    platforms = [line.network.status.name for line in lines]
    if text:
        await Boot(application, folder, platforms, jobs).run(text)


_NETWORK_POLL_SECONDS = 0.5
BackgroundService = Callable[[], Coroutine[Any, Any, None]]
log = logging.getLogger(__name__)
_SURFACE = (
    "You are in a chat on {platform}. Keep answers short enough to read there, in simple Markdown. Nobody is at a"
    " terminal."
)


_NO_NETWORK = (
    "No chat network is set up. Run `talaria setup chat` to enter a token, or turn a network on with `talaria config"
    " set platforms.NAME.enabled true`."
)


async def serve_gateway(
    application: TalariaApplication,
    stop: StopSignal,
    *,
    as_worker: bool,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve every configured network until ``stop``; raises `Refused` if that cannot start.

    ``report`` shows the user at the terminal which networks are served and which have failed. ``as_worker`` allows
    other gateway processes on the same store.
    """
    async with SupervisedTaskGroup() as jobs, AsyncExitStack() as stack:
        patience = application.settings.gateway.drain_seconds
        builder = _Builder(application, jobs, stack, RestartControl(application.store, stop, patience))
        lines = [builder.build_pipeline(platform) for platform in builder.open_platforms()]
        chats = builder.chats
        gateway = GatewaySupervisor(
            application.store,
            application.identity.version,
            lines,
            chats,
            services=[
                *builder.list_watchers(lines),
                *_open_schedule_services(application, jobs, stack),
                partial(follow_restart_requests, application.store, stop),
            ],
            lease=timedelta(seconds=application.settings.gateway.lease_seconds),
            patience=timedelta(seconds=patience),
        )
        gateway.missing = builder.missing
        gateway.models, gateway.mask = application.models.health, application.mask
        first = await gateway.presence.claim(as_worker=as_worker)
        application.processes.supervise_within(jobs, stack, always=True)
        stack.push_async_callback(chats.close)
        health = StatusServer(gateway, application.store, jobs, application.mask)
        await stack.enter_async_context(health.serve(application.settings.gateway.port))
        if application.settings.api.enabled:
            await _serve_api(application, gateway, jobs, stack)
        with _record_shutdown(application, gateway, stop):
            log.info("the gateway is serving %s", ", ".join(line.network.platform.name for line in lines))
            await application.store.write(lambda tx: announce_restart(tx, application.identity.version))
            stack.callback(
                jobs.create_task(follow_settings(application, partial(gateway.problems.__setitem__, "settings"))).cancel
            )
            fire_gateway_start(application, chats.worker, lines)
            if first:
                stack.callback(jobs.create_task(run_boot(application, builder.folder, lines, jobs)).cancel)
            stack.callback(jobs.create_task(_report_networks(gateway, report)).cancel)
            await gateway.serve(stop)


async def _report_networks(gateway: GatewaySupervisor, report: Callable[[str], None]) -> None:
    """Report which networks are served, then each network that fails or reconnects."""
    names = ", ".join(line.network.platform.name for line in gateway.lines) or "the API"
    report(f"The gateway is serving {names}. Press Ctrl-C to stop it.")
    failing: dict[str, str] = {}
    while True:
        for network in gateway.status().networks:
            before = failing.pop(network.name, "")
            if network.state in {"waiting", "refused"} and network.error:
                failing[network.name] = network.error
                if network.error != before:
                    report(f"{network.name} can't be reached: {network.error}. I'll keep trying.")
            elif before and network.state == "connecting":
                failing[network.name] = before
            elif before and network.state == "connected":
                report(f"{network.name} is connected.")
        await asyncio.sleep(_NETWORK_POLL_SECONDS)


async def _serve_api(
    application: TalariaApplication, gateway: GatewaySupervisor, jobs: asyncio.TaskGroup, closing: AsyncExitStack
) -> None:
    """Serve the API too; if its port is taken, for example by another worker, serve only chats.

    Raises `Refused` if there is no network to serve either.
    """
    from talaria.app.api import open_api  # noqa: PLC0415 (loaded when the API is served)

    try:
        await closing.enter_async_context(open_api(application, jobs))
    except Refused as error:
        if not gateway.lines:
            raise
        log.warning("the API isn't served: %s", error)
        gateway.problems["api"] = f"The API isn't served: {error}"


def _open_schedule_services(
    application: TalariaApplication, jobs: asyncio.TaskGroup, closing: AsyncExitStack
) -> list[BackgroundService]:
    """Return the scheduler and the heartbeat; at shutdown, running jobs get the drain time to finish."""
    if not application.settings.schedule.enabled:
        return []
    from talaria.app.jobs import open_heartbeat, open_scheduler  # noqa: PLC0415 (loaded when jobs are enabled)

    scheduler = open_scheduler(application, jobs)
    closing.push_async_callback(scheduler.close, application.settings.gateway.drain_seconds)
    return [scheduler.serve, open_heartbeat(application).serve]


@contextmanager
def _record_shutdown(application: TalariaApplication, gateway: GatewaySupervisor, stop: StopSignal) -> Iterator[None]:
    """Write a report with the reason for the shutdown, and log the report of the previous one.

    The previous report is logged as a warning if it has no reason, for example after a crash.
    """
    folder = application.profile.logs_folder
    begin = start_report(application.identity.version, gateway.presence.worker, gateway.address)
    why = "it had nothing left to do"
    with ExitStack() as stack:
        try:
            last = record_last_report(folder)
            if last is not None:
                log.log(logging.INFO if last.why else logging.WARNING, "%s", last.describe(gateway.started))
            stack.enter_context(running_mark(folder, begin))
        except OSError as error:
            log.warning("couldn't record that the gateway is running: %s", error)
        try:
            yield
            why = stop.why or why
        except BaseException as error:
            cause = first_error(error) if isinstance(error, BaseExceptionGroup) else error
            why = application.mask(f"it failed, {type(cause).__name__}: {cause}")
            raise
        finally:
            ending = finish_report(begin, why, gateway.turns_at_stop, gateway.unfinished)
            log.info("%s", ending.describe(datetime.now(UTC)))
            try:
                write_report(folder, ending)
            except OSError as error:
                log.warning("couldn't record why the gateway stopped: %s", error)


class _Builder:
    """Builder of the parts of one gateway, which share one application."""

    def __init__(
        self, application: TalariaApplication, jobs: asyncio.TaskGroup, closing: AsyncExitStack, service: RestartControl
    ) -> None:
        self._application = application
        self._service = service
        self._jobs = jobs
        self._closing = closing
        self.missing: list[NetworkStatus] = []
        self._used: set[tuple[str, ...]] = set()
        self._network_contexts: dict[str, NetworkContext] = {}
        self._platforms: dict[str, Platform] = {}
        self._media = open_media(application, self._platforms, closing)
        for folder in {Path.cwd(), make_served_folder(application.settings, application.profile)}:
            if notice := FolderTrust(application.profile.folder).notice(folder):
                log.warning(notice)
        self.chats = ChatRegistry(
            application.store,
            new_worker_id(),
            self._open_chat,
            self._build_spec,
            jobs,
            application.settings_admin,
        )
        self.chats.limit_to_platforms(self._platforms)
        self.folder = make_served_folder(application.settings, application.profile)

    def open_platforms(self) -> Sequence[Platform]:
        """Open every configured network; those that fail are left out and reported as missing.

        Raises `Refused` if none could be opened and the API is not enabled.
        """
        names = list_enabled_platforms(self._application.settings, self._application.secrets)
        opened = []
        for name in names:
            try:
                self._lock_account(name)
                opened.append(open_platform(self._build_account(name)))
            except TalariaError as error:
                log.warning("%s isn't served: %s", name, error)
                self.missing.append(NetworkStatus(name=name, state="refused", error=str(error)))
        if not opened and not self._application.settings.api.enabled:
            raise Refused(" ".join(one.error for one in self.missing) or _NO_NETWORK)
        return opened

    def _list_commands(self) -> tuple[Command, ...]:
        """Return the commands of chats; custom ones and skills may have changed since the last call."""
        return select_usable_commands((*REGISTRY, *load_own_commands(self._application)[0]), terminal=False)

    def _lock_account(self, name: str) -> None:
        """Lock the account of a network for this gateway on this machine."""
        application = self._application
        network, find = find_network(application.settings, name), self._make_secret_finder(name)
        groups = BUILT_IN_PLATFORMS[network].secrets if network in BUILT_IN_PLATFORMS else ()
        secrets = [next(filter(None, map(find, group)), "") for group in groups]
        if secrets:
            store = application.settings.store.url or str(application.profile.folder)
            lock_account(application.profile.folder.parent.parent / "locks", network, secrets, store, self._closing)
            if (network, *secrets) in self._used:
                raise Refused(f"{name} has the same token as another account of this gateway; give it its own")
            self._used.add((network, *secrets))

    def _make_secret_finder(self, name: str) -> Callable[[str], str | None]:
        """Return a function that finds the secrets of an account."""
        application = self._application
        return lambda secret: application.secrets.get(account_secret(application.settings, name, secret))

    def build_pipeline(self, platform: Platform) -> NetworkPipeline:
        """Return the pipeline of a network in both directions."""
        application = self._application
        outage = OutageNotices()
        delivery = Delivery(
            application.store,
            platform,
            settings=application.settings_admin,
            files=application.profile.media_folder,
        )
        preview = PreviewOptions(
            store=application.store,
            platform=platform,
            throttle=delivery.throttle,
            worker=self.chats.worker,
            settings=application.settings_admin,
        )
        self._network_contexts[platform.name] = NetworkContext(
            application=application,
            abilities=platform.abilities,
            preview=preview,
            settings=application.settings_admin,
            voice=self._media.spoken,
            service=self._service,
            outage=outage,
        )
        self._platforms[platform.name] = platform
        dispatcher = Dispatcher(
            application.store,
            platform.name,
            application.settings_admin,
            self._list_commands,
            self.chats,
            end_workspace=application.end_workspace,
            hooks=application.hooks,
        )
        lease = timedelta(seconds=application.settings.gateway.lease_seconds)
        network = Receiver(
            platform,
            application.store,
            dispatcher.receive,
            lease=lease,
            connected=delivery.resume,
            reply_during_outage=dispatcher.reply_during_outage,
            outage=outage,
        )
        return NetworkPipeline(network, delivery, dispatcher)

    def list_watchers(self, lines: Sequence[NetworkPipeline]) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Return the background services that run in parallel with the networks."""
        application, chats = self._application, self.chats
        networks, zone = lambda: application.settings.platforms, lambda: application.zone
        forwarding = ForwardingWorker(
            application.store, chats, {line.network.platform.name: line.dispatcher for line in lines}
        )
        handoff_target = GatewayHandoffTarget(
            application.store,
            chats,
            self._platforms,
            lambda: application.settings,
            application.platforms.format_command,
        )
        handoffs = HandoffWorker(application.store, handoff_target)
        flusher = MemoryFlusher(application, chats.worker, self.folder, networks, zone, self._jobs)
        directory = DirectorySync(application.store, [line.network for line in lines])
        completions = CompletionDispatcher(application.store, chats, self._platforms)
        background = partial(application.supervise_background, self._jobs)
        return [
            forwarding.serve,
            handoffs.serve,
            handoff_target.show_remote_turns,
            completions.serve,
            background,
            flusher.serve,
            directory.serve,
        ]

    def _build_account(self, name: str) -> PlatformAccount:
        network = self._application.settings.platforms.get(name)
        commands = select_usable_commands(REGISTRY, terminal=False)
        return PlatformAccount(
            name=name,
            network=find_network(self._application.settings, name),
            options=network.options if network else {},
            secret=self._make_secret_finder(name),
            store=self._application.store,
            folder=self._application.profile.folder / "platforms" / name,
            closing=self._closing,
            commands=[(command.name, command.help) for command in commands],
            may_join=self._may_speak,
        )

    async def _may_speak(self, address: Address, sender: Sender) -> bool:
        now = datetime.now(UTC)
        return await self._application.store.read(
            lambda tx: may_speak(tx, self._application.settings, address, sender, now)
        )

    def _build_request(self, address: Address) -> OpenRequest:
        platform = address.platform
        network = self._application.settings.platforms.get(platform, ChatNetworkSettings())
        prompt = network.prompts.get(address.thread_id) or network.prompts.get(address.chat_id, "")
        if find_chat_owner(address, network):
            room = ROOM_INSTRUCTIONS if find_room(network.rooms, address) else ""
            prompt = " ".join(filter(None, (GROUP_INSTRUCTIONS, room, prompt)))
        return OpenRequest(
            surface=SurfaceInfo(
                source=platform,
                folder=self.folder,
                instructions=f"{_SURFACE.format(platform=platform)} {prompt}".rstrip(),
                lasting=True,
                file_limit=self._network_contexts[platform].abilities.file_limit,
            ),
            turns=TurnOptions(unpack=self._media.attachment_fetcher.unpack),
        )

    async def _build_spec(self, address: Address, session_id: SessionId) -> AgentSpec:
        request = structs.replace(self._build_request(address), session=ResumeSession(session_id))
        return await self._application.agent_spec(request)

    def _open_chat(self, key: str, address: Address) -> Chat:
        shared = find_chat_owner(
            address, self._application.settings.platforms.get(address.platform, ChatNetworkSettings())
        )
        request = structs.replace(self._build_request(address), owner=shared, audience=audience_of(address))
        return Chat(key, address, request, self._network_contexts[address.platform], self._jobs)
