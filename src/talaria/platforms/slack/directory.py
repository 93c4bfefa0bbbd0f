"""Names of people and channels, cached for a while: Slack sends only ids."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from talaria.core.errors import Rejected
from talaria.platforms.slack.client import CHANNEL_ERRORS, ApiClient, CallRefused, to_platform_error

_MOST_NAMES = 5000
_NAME_SECONDS = 3600.0
_MISSING_SECONDS = 300.0
_MOST_AT_ONCE = 10


class NameDirectory:
    """A cache of names for an hour; unknown ids have none for some minutes."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._checked_until: dict[str, float] = {}
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def people(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the known names of people by id."""
        found = {
            one: await self._get_name(one, self._fetch_user_name) for one in list(dict.fromkeys(ids))[:_MOST_AT_ONCE]
        }
        return {one: name for one, name in found.items() if name}

    async def channel(self, channel: str) -> str:
        """Return the name of a channel, empty for a private chat."""
        return "" if channel.startswith("D") else await self._get_name(channel, self._fetch_channel_name)

    async def check_access(self, channel: str) -> None:
        """Raise `Rejected` if we have no access to the channel; recent results are cached."""
        now = asyncio.get_running_loop().time()
        if self._checked_until.get(channel, 0.0) > now:
            return
        try:
            answer = await self._client.ask_raw(self._client.web.conversations_info(channel=channel))
        except CallRefused as call_refused:
            if call_refused.refusal.code in CHANNEL_ERRORS:
                raise to_platform_error(call_refused.refusal) from call_refused
            answer = {}
        found: dict[str, Any] = answer.get("channel") or {}
        if found.get("is_archived") or found.get("is_member") is False:
            raise Rejected(f"the app is not a member of {channel}, or the channel is empty")
        self._checked_until[channel] = now + _MISSING_SECONDS

    async def _get_name(self, key: str, ask: Callable[[str], Awaitable[str]]) -> str:
        now = asyncio.get_running_loop().time()
        known = self._names.get(key)
        if known is not None and known[1] > now:
            return known[0]
        name = await ask(key) or (known[0] if known else "")
        self._names[key] = (name, now + (_NAME_SECONDS if name else _MISSING_SECONDS))
        self._names.move_to_end(key)
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
        return name

    async def _fetch_user_name(self, user: str) -> str:
        answer = await self._client.attempt(self._client.web.users_info(user=user))
        person: dict[str, Any] = (answer or {}).get("user") or {}
        profile: dict[str, Any] = person.get("profile") or {}
        names = (profile.get("display_name"), profile.get("real_name"), person.get("real_name"), person.get("name"))
        return next((str(name) for name in names if name), "")

    async def _fetch_channel_name(self, channel: str) -> str:
        answer = await self._client.attempt(self._client.web.conversations_info(channel=channel))
        found: dict[str, Any] = (answer or {}).get("channel") or {}
        return str(found.get("name") or "")
