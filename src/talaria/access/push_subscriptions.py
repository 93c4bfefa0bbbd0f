"""Push subscriptions of signed-in browsers: where notifications are sent, and which."""

from datetime import datetime, time
from zoneinfo import ZoneInfoNotFoundError

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.formatting import load_zone


class PushSubscription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The address of a browser at its push service, with its keys as base64url; ``person`` is empty for the owner.

    ``shows_content`` sends titles and texts, otherwise only what kind of news there is. ``quiet_from`` and ``quiet_to``
    are local times of ``zone``, as HH:MM, between which nothing is sent; both empty for never.
    """

    endpoint: str
    p256dh: str
    auth: str
    person: str = ""
    shows_content: bool = False
    quiet_from: str = ""
    quiet_to: str = ""
    zone: str = ""

    def is_quiet(self, now: datetime) -> bool:
        """Return whether nothing is sent at this time."""
        if not self.quiet_from or not self.quiet_to:
            return False
        try:
            local = now.astimezone(load_zone(self.zone)) if self.zone else now.astimezone()
        except (ZoneInfoNotFoundError, ValueError):
            local = now.astimezone()
        begin, end = time.fromisoformat(self.quiet_from), time.fromisoformat(self.quiet_to)
        at = local.time()
        return begin <= at < end if begin <= end else at >= begin or at < end


_SUBSCRIPTIONS = NamedValue("web_push", PushSubscription)  # by the id of the browser


def write_subscription(tx: Transaction, browser_id: str, subscription: PushSubscription) -> None:
    """Store the subscription of a browser; another browser's with the same address is removed."""
    for other, known in _SUBSCRIPTIONS.items(tx).items():
        if known.endpoint == subscription.endpoint and other != browser_id:
            _SUBSCRIPTIONS.delete(tx, other)
    _SUBSCRIPTIONS.write(tx, browser_id, subscription)


def read_subscription(tx: Transaction, browser_id: str) -> PushSubscription | None:
    """Return the subscription of a browser."""
    return _SUBSCRIPTIONS.get(tx, browser_id)


def find_subscriptions(tx: Transaction, person: str) -> dict[str, PushSubscription]:
    """Return the subscriptions of a person by browser."""
    return {browser: one for browser, one in _SUBSCRIPTIONS.items(tx).items() if one.person == person}


def delete_subscription(tx: Transaction, browser_id: str) -> bool:
    """Delete the subscription of a browser; ``False`` if it has none."""
    return _SUBSCRIPTIONS.delete(tx, browser_id)
