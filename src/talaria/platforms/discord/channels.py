"""What is known of the places on Discord: asked for once, told of when they change."""

from collections import OrderedDict

import msgspec

from talaria.core.errors import Rejected
from talaria.platforms.discord.calls import Calls
from talaria.platforms.discord.receiving import Event
from talaria.platforms.discord.wire import Channel, Guild, Role, read

_KEPT = 5000
_CHANGES = frozenset({"CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE"})


class Directory:
    """Channels and threads by their ids, and the role that a server has for us."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._channels: OrderedDict[str, Channel] = OrderedDict()
        self._roles: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        """Learn from what is told of places anyway."""
        try:
            if event.name == "GUILD_CREATE":
                guild = msgspec.json.decode(event.data, type=Guild)
                for channel in (*guild.channels, *guild.threads):
                    self._add(msgspec.structs.replace(channel, guild_id=guild.id))
            elif event.name in _CHANGES:
                self._add(msgspec.json.decode(event.data, type=Channel))
        except msgspec.DecodeError:  # it is asked for when it is needed
            return

    async def find(self, channel_id: str, guild_id: str = "") -> Channel:
        """Return a place; one that may not be looked at counts as a channel of its server."""
        if channel_id not in self._channels:
            try:
                found = read(await self._calls.ask(lambda api: api.get_channel(channel_id)), Channel)
            except Rejected:
                return Channel(channel_id, guild_id=guild_id)
            self._add(found)
        self._channels.move_to_end(channel_id)
        return self._channels[channel_id]

    async def own_role(self, guild_id: str) -> str:
        """Return the role that stands for us in a server; naming it is naming us."""
        if guild_id not in self._roles:
            me = await self._calls.me()
            try:
                answer = await self._calls.ask(lambda api: api.get_roles(guild_id))
            except Rejected:
                return ""
            roles = [read(one, Role) for one in answer]
            self._roles[guild_id] = next((role.id for role in roles if role.tags.bot_id == me.id), "")
        return self._roles[guild_id]

    def _add(self, channel: Channel) -> None:
        self._channels[channel.id] = channel
        if len(self._channels) > _KEPT:
            self._channels.popitem(last=False)
