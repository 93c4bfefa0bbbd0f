"""Messages of which nobody knows whether they were posted: Slack is asked before they are posted once more."""

from collections import OrderedDict
from typing import Any

from talaria.core.addresses import Address
from talaria.platforms.slack.calls import Calls

_KNOWN = 500
_LOOKED_AT = 100


class Doubts:
    """The keys of messages whose posting was not answered, as long as this process lives."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._keys: OrderedDict[str, None] = OrderedDict()

    def add(self, key: str) -> None:
        """Note that a message with this key may be there."""
        self._keys[key] = None
        if len(self._keys) > _KNOWN:
            self._keys.popitem(last=False)

    async def find(self, to: Address, key: str) -> str:
        """Return the message with this key if it is there after all; where Slack does not tell, it is not."""
        if key not in self._keys:
            return ""
        del self._keys[key]
        web = self._calls.web
        if to.thread_id:
            asked = web.conversations_replies(
                channel=to.chat_id, ts=to.thread_id, include_all_metadata=True, limit=_LOOKED_AT
            )
        else:
            asked = web.conversations_history(channel=to.chat_id, include_all_metadata=True, limit=_LOOKED_AT)
        answer = await self._calls.attempt(asked)
        messages: list[dict[str, Any]] = (answer or {}).get("messages") or []
        return next((str(one.get("ts", "")) for one in messages if _key_of(one) == key), "")


def _key_of(message: dict[str, Any]) -> str:
    metadata: dict[str, Any] = message.get("metadata") or {}
    payload: dict[str, Any] = metadata.get("event_payload") or {}
    return str(payload.get("key", ""))
