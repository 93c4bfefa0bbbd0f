"""The names of people and channels, asked for once in a while: what Slack hands over has ids only."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from talaria.core.errors import Rejected
from talaria.platforms.slack.calls import Calls, NotTaken
from talaria.platforms.slack.refusals import GONE, our_error

_KNOWN = 5000
_GOOD_FOR = 3600.0
_MISSING_FOR = 300.0
_MOST_AT_ONCE = 10


class Directory:
    """Names as they were within the last hour; who cannot be found has none for some minutes."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._expected: dict[str, float] = {}
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def people(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of people by their ids, of those who have one."""
        found = {one: await self._name(one, self._person) for one in list(dict.fromkeys(ids))[:_MOST_AT_ONCE]}
        return {one: name for one, name in found.items() if name}

    async def channel(self, channel: str) -> str:
        """Return the name of a channel, empty for a private chat."""
        return "" if channel.startswith("D") else await self._name(channel, self._channel)

    async def expect(self, channel: str) -> None:
        """Raise `Rejected` where there is no such channel for us; what was there lately is not asked for again."""
        now = asyncio.get_running_loop().time()
        if self._expected.get(channel, 0.0) > now:
            return
        try:
            answer = await self._calls.ask_openly(self._calls.web.conversations_info(channel=channel))
        except NotTaken as no:
            if no.refusal.code in GONE:
                raise our_error(no.refusal) from no
            answer = {}
        found: dict[str, Any] = answer.get("channel") or {}
        if found.get("is_archived") or found.get("is_member") is False:
            raise Rejected(f"we are not in {channel}, or nobody is any more")
        self._expected[channel] = now + _MISSING_FOR

    async def _name(self, key: str, ask: Callable[[str], Awaitable[str]]) -> str:
        now = asyncio.get_running_loop().time()
        known = self._names.get(key)
        if known is not None and known[1] > now:
            return known[0]
        name = await ask(key) or (known[0] if known else "")
        self._names[key] = (name, now + (_GOOD_FOR if name else _MISSING_FOR))
        self._names.move_to_end(key)
        if len(self._names) > _KNOWN:
            self._names.popitem(last=False)
        return name

    async def _person(self, user: str) -> str:
        answer = await self._calls.attempt(self._calls.web.users_info(user=user))
        person: dict[str, Any] = (answer or {}).get("user") or {}
        profile: dict[str, Any] = person.get("profile") or {}
        names = (profile.get("display_name"), profile.get("real_name"), person.get("real_name"), person.get("name"))
        return next((str(name) for name in names if name), "")

    async def _channel(self, channel: str) -> str:
        answer = await self._calls.attempt(self._calls.web.conversations_info(channel=channel))
        found: dict[str, Any] = (answer or {}).get("channel") or {}
        return str(found.get("name") or "")
