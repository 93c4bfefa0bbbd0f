"""Put a gateway together: networks, rooms and deliveries over one house."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from talaria.app.account_locks import hold_account
from talaria.app.folders import served_folder
from talaria.app.gateway_start import do_boot, tell_hooks
from talaria.app.house import House
from talaria.app.live_settings import follow_settings
from talaria.app.media import open_media
from talaria.app.platforms import KNOWN, enabled_platforms, open_platform
from talaria.app.subcommands import load
from talaria.commands.custom import load_custom
from talaria.commands.registry import REGISTRY
from talaria.commands.using import usable
from talaria.contracts.platform import Platform, PlatformAccount, Sender
from talaria.core.addresses import Address, audience_of
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId, new_worker_id
from talaria.gateway.access import Access
from talaria.gateway.coming_back import Restarting, say_that_it_is_back
from talaria.gateway.delivery import Delivery
from talaria.gateway.directory import Directory
from talaria.gateway.doorman import Doorman, place_owner
from talaria.gateway.farewell import Farewells
from talaria.gateway.gateway import Gateway, Line
from talaria.gateway.handoffs import Handoffs
from talaria.gateway.health import Health
from talaria.gateway.intake import Intake
from talaria.gateway.letters import Letters
from talaria.gateway.network import Network
from talaria.gateway.outage_notices import OutageNotices
from talaria.gateway.room import Door, Room
from talaria.gateway.rooms import Rooms
from talaria.gateway.shelter import Shelter
from talaria.gateway.streaming import Stage
from talaria.gateway.waking import Waking
from talaria.gateway.welcome import may_speak
from talaria.sessions.chat import ChatWish
from talaria.sessions.company import first_error
from talaria.sessions.ending import Stop, begun, ended, marked, take_note, write_ending
from talaria.sessions.presence import NetworkStatus
from talaria.sessions.prospect import Prospect
from talaria.settings.chats import ChatNetwork
from talaria.settings.folder_trust import FolderTrust

_LOOK_AT_NETWORKS = 0.5
Watcher = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)

_SURFACE = (
    "You are in a chat on {platform}: keep answers short enough to read there, in simple Markdown; there is nobody at"
    " a terminal."
)
_NONE = (
    "No chat network is set up: `talaria setup chat` asks for their tokens, `talaria config set` changes"
    " platforms.NAME.enabled."
)


async def serve_gateway(
    house: House, stop: Stop, *, beside: bool, report: Callable[[str], None] = lambda _: None
) -> None:
    """Serve every network that is set up until ``stop``; raises `Refused` where that cannot begin.

    ``report`` shows the person at the terminal what is served, and which networks are in trouble.
    """
    async with Shelter() as jobs, AsyncExitStack() as stack:
        patience = house.settings.gateway.drain_seconds
        builder = _Builder(house, jobs, stack, Restarting(house.store, stop, patience))
        lines = [builder.line(platform) for platform in builder.platforms()]
        rooms = builder.rooms
        gateway = Gateway(
            house.store,
            house.identity.version,
            lines,
            rooms,
            beside=[*builder.watchers(lines), *_schedules(house, jobs, stack)],
            lease=timedelta(seconds=house.settings.gateway.lease_seconds),
            patience=timedelta(seconds=patience),
        )
        gateway.missing = builder.missing
        gateway.models, gateway.mask = house.models.health, house.mask
        first = await gateway.presence.claim(beside=beside)
        house.processes.attend(jobs, stack, always=True)
        stack.push_async_callback(rooms.close)
        health = Health(gateway, house.store, jobs, house.mask)
        await stack.enter_async_context(health.served(house.settings.gateway.port))
        if house.settings.api.enabled:
            await _serve_api(house, gateway, jobs, stack)
        with _last_words(house, gateway, stop):
            log.info("the gateway serves %s", ", ".join(line.network.platform.name for line in lines))
            await house.store.write(lambda tx: say_that_it_is_back(tx, house.identity.version))
            stack.callback(
                jobs.create_task(follow_settings(house, partial(gateway.troubles.__setitem__, "settings"))).cancel
            )
            tell_hooks(house, rooms.worker, lines)
            if first:
                stack.callback(jobs.create_task(do_boot(house, builder.folder, lines, jobs)).cancel)
            stack.callback(jobs.create_task(_report_networks(gateway, report)).cancel)
            await gateway.serve(stop)


async def _report_networks(gateway: Gateway, report: Callable[[str], None]) -> None:
    """Report what is served, and from then on each network that fails or is back."""
    names = ", ".join(line.network.platform.name for line in gateway.lines) or "the API"
    report(f"The gateway is serving {names}. Press Ctrl-C to stop it.")
    in_trouble: dict[str, str] = {}
    while True:
        for network in gateway.status().networks:
            before = in_trouble.pop(network.name, "")
            if network.state in {"waiting", "refused"} and network.error:
                in_trouble[network.name] = network.error
                if network.error != before:
                    report(f"{network.name} can't be reached: {network.error}. I'll keep trying.")
            elif before and network.state == "connecting":
                in_trouble[network.name] = before
            elif before and network.state == "connected":
                report(f"{network.name} is connected.")
        await asyncio.sleep(_LOOK_AT_NETWORKS)


async def _serve_api(house: House, gateway: Gateway, jobs: asyncio.TaskGroup, closing: AsyncExitStack) -> None:
    """Serve the API as well; chats do not suffer where that cannot be, as in a second worker on one machine."""
    try:
        await closing.enter_async_context(load("talaria.app.api").api_served(house, jobs))
    except Refused as error:
        if not gateway.lines:
            raise
        log.warning("the API is not served: %s", error)
        gateway.troubles["api"] = f"The API is not served: {error}"


def _schedules(house: House, jobs: asyncio.TaskGroup, closing: AsyncExitStack) -> list[Watcher]:
    """Return what starts jobs; those that run at the end may come to theirs first."""
    if not house.settings.schedule.enabled:
        return []
    schedules = load("talaria.app.schedules")
    ticker = schedules.open_ticker(house, jobs)
    closing.push_async_callback(ticker.close, house.settings.gateway.drain_seconds)
    return [ticker.serve, schedules.open_heartbeat(house).serve]


@contextmanager
def _last_words(house: House, gateway: Gateway, stop: Stop) -> Iterator[None]:
    """See to it that whoever looks for the reason of an end finds it; take note of an end that had no words."""
    folder = house.profile.logs_folder
    begin = begun(house.identity.version, gateway.presence.worker, gateway.address)
    why = "it had nothing left to do"
    with ExitStack() as stack:
        try:
            last = take_note(folder)
            if last is not None:
                log.log(logging.INFO if last.why else logging.WARNING, "%s", last.told(gateway.started))
            stack.enter_context(marked(folder, begin))
        except OSError as error:
            log.warning("that the gateway runs was not written: %s", error)
        try:
            yield
            why = stop.why or why
        except BaseException as error:
            cause = first_error(error) if isinstance(error, BaseExceptionGroup) else error
            why = house.mask(f"it failed, {type(cause).__name__}: {cause}")
            raise
        finally:
            ending = ended(begin, why, gateway.turns_at_stop, gateway.unfinished)
            log.info("%s", ending.told(datetime.now(UTC)))
            try:
                write_ending(folder, ending)
            except OSError as error:
                log.warning("why the gateway ended was not written: %s", error)


class _Builder:
    """Makes the parts of one gateway, all of them over the same house."""

    def __init__(self, house: House, jobs: asyncio.TaskGroup, closing: AsyncExitStack, service: Restarting) -> None:
        self._house = house
        self._service = service
        self._jobs = jobs
        self._closing = closing
        self.missing: list[NetworkStatus] = []
        self._doors: dict[str, Door] = {}
        self._platforms: dict[str, Platform] = {}
        self._media = open_media(house, self._platforms, lambda name: self._doors[name].wake_delivery(), closing)
        self._custom = load_custom(house.command_folders)[0]
        if not FolderTrust(house.profile.folder).is_trusted(Path.cwd()):
            log.warning("commands and skills of %s are ignored: `talaria trust` lets them take effect", Path.cwd())
        settings = house.settings.gateway
        self.rooms = Rooms(
            house.store,
            new_worker_id(),
            self._room,
            self._prospect,
            jobs,
            cap=settings.rooms,
            idle=timedelta(seconds=settings.idle_seconds),
        )
        self.rooms.restrict_to(self._platforms)
        self.folder = served_folder(house.settings, house.profile)

    def platforms(self) -> Sequence[Platform]:
        """Open every network that is set up; one that cannot be opened is no reason to leave out the others."""
        names = enabled_platforms(self._house.settings, self._house.secrets)
        opened = []
        for name in names:
            try:
                self._hold(name)
                opened.append(open_platform(self._account(name)))
            except TalariaError as error:
                log.warning("%s is left out: %s", name, error)
                self.missing.append(NetworkStatus(name=name, state="refused", error=str(error)))
        if not opened and not self._house.settings.api.enabled:
            raise Refused(" ".join(one.error for one in self.missing) or _NONE)
        return opened

    def _hold(self, name: str) -> None:
        """Be the only gateway on this machine that uses the account of a network."""
        house = self._house
        groups = KNOWN[name].secrets if name in KNOWN else ()
        secrets = [next(filter(None, map(house.secrets.get, group)), "") for group in groups]
        if secrets:
            store = house.settings.store.url or str(house.profile.folder)
            hold_account(house.profile.folder.parent.parent / "locks", name, secrets, store, self._closing)

    def line(self, platform: Platform) -> Line:
        """Return a network in both directions."""
        house = self._house
        outage = OutageNotices()
        delivery = Delivery(
            house.store,
            platform,
            reply_limit=lambda: house.settings.gateway.reply_characters,
            files=house.profile.media_folder,
        )
        stage = Stage(
            store=house.store,
            platform=platform,
            throttle=delivery.throttle,
            worker=self.rooms.worker,
            reply_limit=lambda: house.settings.gateway.reply_characters,
        )
        self._doors[platform.name] = Door(
            house=house,
            abilities=platform.abilities,
            wake_delivery=delivery.wake,
            stage=stage,
            is_owner=lambda user_id: Access(house.settings).is_owner(platform.name, user_id),
            manner=lambda: house.settings.platforms.get(platform.name, ChatNetwork()),
            service=self._service,
            outage=outage,
        )
        commands = usable((*REGISTRY, *self._custom), terminal=False)
        self._platforms[platform.name] = platform
        intake = Intake(
            house.store,
            platform.name,
            lambda: Doorman(house.settings, platform.name, commands, house.zone),
            self.rooms,
            lambda: house.settings.gateway.busy,
            house.end_workplace,
            house.hooks,
        )
        lease = timedelta(seconds=house.settings.gateway.lease_seconds)
        network = Network(
            platform,
            house.store,
            intake.take,
            lease=lease,
            connected=delivery.resume,
            meanwhile=intake.meanwhile,
            outage=outage,
        )
        return Line(network, delivery, intake)

    def watchers(self, lines: Sequence[Line]) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Return what goes on beside the networks."""
        house, rooms = self._house, self.rooms
        networks, zone = lambda: house.settings.platforms, lambda: house.zone
        letters = Letters(house.store, rooms, {line.network.platform.name: line.intake for line in lines})
        handoffs = Handoffs(house.store, rooms, self._platforms, lambda: house.settings)
        farewells = Farewells(house, rooms.worker, self.folder, networks, zone, self._jobs)
        directory = Directory(house.store, [line.network for line in lines])
        waking = Waking(house.store, rooms, self._platforms)
        background = partial(house.tend_background, self._jobs)
        return [letters.serve, handoffs.serve, waking.serve, background, farewells.serve, directory.serve]

    def _account(self, name: str) -> PlatformAccount:
        network = self._house.settings.platforms.get(name)
        commands = usable(REGISTRY, terminal=False)
        return PlatformAccount(
            name=name,
            options=network.options if network else {},
            secret=self._house.secrets.get,
            store=self._house.store,
            folder=self._house.profile.folder / "platforms" / name,
            closing=self._closing,
            commands=[(command.name, command.help) for command in commands],
            admits=self._admits,
        )

    async def _admits(self, place: Address, sender: Sender) -> bool:
        now = datetime.now(UTC)
        return await self._house.store.read(lambda tx: may_speak(tx, self._house.settings, place, sender, now))

    def _wish(self, address: Address) -> ChatWish:
        platform = address.platform
        prompts = self._house.settings.platforms.get(platform, ChatNetwork()).prompts
        prompt = prompts.get(address.thread_id) or prompts.get(address.chat_id, "")
        return ChatWish(
            source=platform,
            folder=self.folder,
            surface=f"{_SURFACE.format(platform=platform)} {prompt}".rstrip(),
            lasting=True,
            followers=(self._media.spoken,),
            unpack=self._media.unpacker.unpack,
            file_limit=self._doors[platform].abilities.file_limit,
        )

    async def _prospect(self, address: Address, session_id: SessionId) -> Prospect:
        return await self._house.prospect(structs.replace(self._wish(address), resume=session_id))

    def _room(self, key: str, address: Address) -> Room:
        shared = place_owner(address, self._house.settings.platforms.get(address.platform, ChatNetwork()))
        wish = structs.replace(self._wish(address), owner=shared, audience=audience_of(address))
        return Room(key, address, wish, self._doors[address.platform], self._jobs)
