"""Put a gateway together: networks, rooms and deliveries over one house."""

import logging
from asyncio import TaskGroup
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from talaria.app.house import House
from talaria.app.platforms import enabled_platforms, open_platform
from talaria.commands.custom import load_custom
from talaria.commands.registry import REGISTRY
from talaria.commands.using import usable
from talaria.contracts.platform import Platform, PlatformAccount
from talaria.core.addresses import Address
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import new_worker_id
from talaria.gateway.delivery import Delivery
from talaria.gateway.doorman import Doorman
from talaria.gateway.gateway import Gateway, Line
from talaria.gateway.health import Health
from talaria.gateway.intake import Intake
from talaria.gateway.network import Network
from talaria.gateway.replies import ReplyFollower
from talaria.gateway.room import Door, Room
from talaria.gateway.rooms import Rooms
from talaria.gateway.streaming import Stage
from talaria.sessions.chat import ChatWish
from talaria.sessions.company import first_error
from talaria.sessions.ending import Stop, begun, ended, marked, take_note, write_ending

log = logging.getLogger(__name__)

_SURFACE = (
    "You are in a chat on {platform}: keep answers short enough to read there, in simple Markdown; there is nobody at"
    " a terminal."
)
_NONE = (
    "No chat network is set up: `talaria setup chat` asks for their tokens, `talaria config set` changes"
    " platforms.NAME.enabled."
)


async def serve_gateway(house: House, stop: Stop, *, beside: bool) -> None:
    """Serve every network that is set up until ``stop``; raises `Refused` where that cannot begin."""
    async with TaskGroup() as jobs, AsyncExitStack() as stack:
        builder = _Builder(house, jobs, stack)
        lines = [builder.line(platform) for platform in builder.platforms()]
        rooms = builder.rooms
        gateway = Gateway(
            house.store,
            builder.worker,
            house.identity.version,
            lines,
            rooms,
            lease=timedelta(seconds=house.settings.gateway.lease_seconds),
            patience=timedelta(seconds=house.settings.gateway.drain_seconds),
        )
        await gateway.presence.claim(beside=beside)
        stack.push_async_callback(rooms.close)
        health = Health(gateway, house.store, jobs, house.mask)
        await stack.enter_async_context(health.served(house.settings.gateway.port))
        with _last_words(house, gateway, stop):
            await gateway.serve(stop)


@contextmanager
def _last_words(house: House, gateway: Gateway, stop: Stop) -> Iterator[None]:
    """See to it that whoever looks for the reason of an end finds it; take note of an end that had no words."""
    folder = house.profile.logs_folder
    begin = begun(house.identity.version)
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

    def __init__(self, house: House, jobs: TaskGroup, closing: AsyncExitStack) -> None:
        self._house = house
        self._jobs = jobs
        self._closing = closing
        self.worker = new_worker_id()
        self._doors: dict[str, Door] = {}
        self._custom = load_custom(house.command_folders)[0]
        settings = house.settings.gateway
        self.rooms = Rooms(house.store, self._room, cap=settings.rooms, idle=timedelta(seconds=settings.idle_seconds))
        # Not in the profile's own folder: what is there the agent may not touch without asking.
        own = house.profile.folder.parent.parent / "workspaces" / house.profile.name
        self._folder = Path(settings.folder).expanduser() if settings.folder else own
        self._folder.mkdir(parents=True, exist_ok=True)

    def platforms(self) -> Sequence[Platform]:
        """Open every network that is set up; one that cannot be opened is no reason to leave out the others."""
        names = enabled_platforms(self._house.settings, self._house.secrets)
        opened, errors = [], []
        for name in names:
            try:
                opened.append(open_platform(self._account(name)))
            except TalariaError as error:
                errors.append(str(error))
        if not opened:
            raise Refused(" ".join(errors) or _NONE)
        return opened

    def line(self, platform: Platform) -> Line:
        """Return a network in both directions."""
        house = self._house
        delivery = Delivery(house.store, platform)
        stage = Stage(store=house.store, platform=platform, gate=delivery.gate, worker=self.worker)
        self._doors[platform.name] = Door(
            house=house, abilities=platform.abilities, wake_delivery=delivery.wake, stage=stage
        )
        commands = usable((*REGISTRY, *self._custom), terminal=False)
        media = house.profile.folder / "media"
        media.mkdir(exist_ok=True)
        intake = Intake(
            house.store,
            platform,
            lambda: Doorman(house.settings, platform.name, commands, house.zone),
            self.rooms,
            media,
            lambda: house.settings.gateway.busy,
        )
        lease = timedelta(seconds=house.settings.gateway.lease_seconds)
        return Line(Network(platform, house.store, intake.take, lease=lease), delivery)

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
        )

    def _room(self, key: str, address: Address) -> Room:
        door = self._doors[address.platform]
        wish = ChatWish(
            source=address.platform,
            folder=self._folder,
            surface=_SURFACE.format(platform=address.platform),
            lasting=True,
            followers=(ReplyFollower(door.wake_delivery),),
        )
        return Room(key, address, wish, door, self._jobs)
