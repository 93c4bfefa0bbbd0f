"""Slash commands on Discord: registered if changed, acknowledged at once, removed when answered."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from talaria.core.errors import BadCredentials, PlatformError
from talaria.platforms.discord.client import ApiClient
from talaria.platforms.discord.incoming import COMMAND, COMPONENT
from talaria.platforms.discord.outgoing import Payload, build_menu
from talaria.platforms.discord.wire import Interaction, parse

_BEST_EFFORT = timedelta(seconds=5)
_MOST_PENDING = 200
_THINKING: Payload = {"type": 5, "data": {"flags": 1 << 6}}  # visible only to the person who asked
_UNCHANGED: Payload = {"type": 6}

log = logging.getLogger(__name__)


class _Option(Struct, frozen=True):
    name: str


class _Command(Struct, frozen=True):
    name: str
    description: str = ""
    options: tuple[_Option, ...] = ()


class Commands:
    """The commands of one bot, and the chats with a pending command."""

    def __init__(self, client: ApiClient, commands: Sequence[tuple[str, str]]) -> None:
        self._client = client
        self._menu = build_menu(commands)
        self._pending: OrderedDict[str, Interaction] = OrderedDict()

    async def register(self) -> None:
        """Register the commands with Discord; nothing is sent if they are unchanged."""
        if not self._menu:
            return
        try:
            application = (await self._client.ask(lambda api: api.application_info()))["id"]
            registered = await self._client.ask(lambda api: api.get_global_commands(application))
            if _parse_commands(registered) != _parse_commands(self._menu):
                await self._client.ask(lambda api: api.bulk_upsert_global_commands(application, self._menu))
        except BadCredentials:
            raise
        except PlatformError as error:
            log.warning("discord: couldn't register commands: %s", error)

    async def acknowledge(self, interaction: Interaction, channel: str) -> None:
        """Acknowledge an interaction, which Discord expects within three seconds; repeating it is harmless."""
        if interaction.type not in (COMMAND, COMPONENT):
            return
        answer = _THINKING if interaction.type == COMMAND else _UNCHANGED
        try:
            await self._client.ask(lambda api: api.respond(interaction.id, interaction.token, answer), _BEST_EFFORT)
        except BadCredentials:
            raise
        except PlatformError as error:
            log.info("discord: couldn't acknowledge an interaction: %s", error)
            return
        if interaction.type == COMMAND:
            self._pending[channel] = interaction
            if len(self._pending) > _MOST_PENDING:
                self._pending.popitem(last=False)

    async def clear_thinking(self, channel: str) -> None:
        """Remove the "thinking" message now that the answer is there."""
        interaction = self._pending.pop(channel, None)
        if interaction is None:
            return
        try:
            await self._client.ask(
                lambda api: api.delete_original_response(interaction.application_id, interaction.token), _BEST_EFFORT
            )
        except PlatformError as error:
            log.info("discord: couldn't remove an interaction: %s", error)


def _parse_commands(commands: object) -> set[_Command]:
    return set(parse(commands, tuple[_Command, ...]))
