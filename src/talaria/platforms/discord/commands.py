"""Slash commands on Discord: registered where they differ, acknowledged at once, cleared away when answered."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from talaria.core.errors import BadCredentials, PlatformError
from talaria.platforms.discord.calls import Calls
from talaria.platforms.discord.incoming import COMMAND, COMPONENT
from talaria.platforms.discord.outgoing import Payload, menu
from talaria.platforms.discord.wire import Interaction, read

_BEST_EFFORT = timedelta(seconds=5)
_WAITING_AT_MOST = 200
_THINKING: Payload = {"type": 5, "data": {"flags": 1 << 6}}  # seen by the one who asked alone
_UNCHANGED: Payload = {"type": 6}

log = logging.getLogger(__name__)


class _Option(Struct, frozen=True):
    name: str


class _Command(Struct, frozen=True):
    name: str
    description: str = ""
    options: tuple[_Option, ...] = ()


class Commands:
    """The commands of one bot, and the places where somebody waits for what one of them says."""

    def __init__(self, calls: Calls, commands: Sequence[tuple[str, str]]) -> None:
        self._calls = calls
        self._menu = menu(commands)
        self._waiting: OrderedDict[str, Interaction] = OrderedDict()

    async def register(self) -> None:
        """Let Discord offer what there is; nothing is sent where it does already."""
        if not self._menu:
            return
        try:
            application = (await self._calls.ask(lambda api: api.application_info()))["id"]
            there = await self._calls.ask(lambda api: api.get_global_commands(application))
            if _shown(there) != _shown(self._menu):
                await self._calls.ask(lambda api: api.bulk_upsert_global_commands(application, self._menu))
        except BadCredentials:
            raise
        except PlatformError as error:
            log.warning("discord: the commands were not registered: %s", error)

    async def acknowledge(self, interaction: Interaction, channel: str) -> None:
        """Say that it was heard, for which Discord waits three seconds; a second time changes nothing."""
        if interaction.type not in (COMMAND, COMPONENT):
            return
        answer = _THINKING if interaction.type == COMMAND else _UNCHANGED
        try:
            await self._calls.ask(lambda api: api.respond(interaction.id, interaction.token, answer), _BEST_EFFORT)
        except BadCredentials:
            raise
        except PlatformError as error:
            log.info("discord: an interaction was not acknowledged: %s", error)
            return
        if interaction.type == COMMAND:
            self._waiting[channel] = interaction
            if len(self._waiting) > _WAITING_AT_MOST:
                self._waiting.popitem(last=False)

    async def answered(self, channel: str) -> None:
        """Clear away that an answer is being thought of, now that it is there."""
        interaction = self._waiting.pop(channel, None)
        if interaction is None:
            return
        try:
            await self._calls.ask(
                lambda api: api.take_back(interaction.application_id, interaction.token), _BEST_EFFORT
            )
        except PlatformError as error:
            log.info("discord: an interaction was not cleared away: %s", error)


def _shown(commands: object) -> set[_Command]:
    return set(read(commands, tuple[_Command, ...]))
