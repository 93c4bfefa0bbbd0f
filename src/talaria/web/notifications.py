"""Notifications for people: to the pages that are open, or by Web Push (RFC 8030) to their devices."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from talaria.access.browsers import PushSubscription, delete_subscription, find_subscriptions
from talaria.access.pairing import PAIRING_TOPIC
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.access import PairedPerson
from talaria.core.errors import Refused, StoreError, TalariaError
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId
from talaria.web.hub import LiveHub
from talaria.web.wire import NoticeMessage

if TYPE_CHECKING:  # its library is an extra, and 9 MB
    from talaria.web.push_encryption import VapidKey

NotificationKind = Literal["asked", "answered", "delivered", "pairing"]
_LONGEST_TEXT = 300
PostRequest = Callable[[str, bytes, Mapping[str, str]], Awaitable[tuple[int, Mapping[str, str]]]]
_LONGEST_PUSHED = 500
_SECONDS_TO_LIVE = 86_400
_TITLES: Mapping[NotificationKind, str] = {
    "asked": "Waiting for you",
    "answered": "New answer",
    "delivered": "New message",
    "pairing": "Someone asks for access",
}
_GONE = (404, 410)
_CONTACT = "mailto:push@talaria.invalid"  # push services want an address; nobody reads it
log = logging.getLogger(__name__)


class WebNotification(Struct, frozen=True):
    """Something that a person should know; ``session`` is the conversation that it is about, empty if none."""

    kind: NotificationKind
    session: str = ""
    title: str = ""
    text: str = ""

    @property
    def path(self) -> str:
        """The page to open."""
        return f"/c/{self.session}" if self.session else "/people" if self.kind == "pairing" else "/"


PushNotification = Callable[[str, WebNotification], Awaitable[None]]


class Notifier:
    """Sender of notifications; ``push`` sends one to the devices of a person."""

    def __init__(self, hub: LiveHub, push: PushNotification) -> None:
        self._hub = hub
        self._push = push

    def is_seen(self, session_id: SessionId, person: str) -> bool:
        """Return whether a person has a conversation on a visible page."""
        return any(one.caller.person == person and session_id in one.seen for one in self._hub.streams)

    async def notify(self, person: str, notification: WebNotification) -> None:
        """Notify a person, unless the conversation is on a visible page of theirs."""
        if notification.session and self.is_seen(SessionId(notification.session), person):
            return
        streams = [one for one in self._hub.streams if one.caller.person == person]
        text = notification.text[:_LONGEST_TEXT]
        message = NoticeMessage(notification.kind, notification.session, notification.title, text, notification.path)
        for stream in streams:
            stream.send(message)
        if not any(one.is_visible for one in streams):
            await self._push(person, notification)


async def follow_pairing(store: Store, notifier: Notifier) -> None:
    """Notify the owner of new pairing requests until cancelled."""
    known: frozenset[PairedPerson] | None = None
    async with store.subscribe(PAIRING_TOPIC) as subscription:
        while True:
            is_notified = await subscription.wait()
            if known is not None and not is_notified:
                continue
            try:
                waiting = frozenset(await store.read(lambda tx: tx.pairing.waiting()))
            except StoreError:
                continue
            for person in waiting - (waiting if known is None else known):
                name = f"{person.name or person.user_id} on {platform_label(person.platform)}"
                await notifier.notify("", WebNotification("pairing", "", name, "asks for access."))
            known = waiting


class PushPayload(Struct, frozen=True):
    """Payload of a push message, read by the service worker of the page."""

    title: str
    body: str
    path: str
    tag: str


class PushSender:
    """Sender of notifications to the browsers of a person; ``post`` sends a request and returns the status.

    The key of ``key_file`` is loaded, and created if it is missing, when a browser wants notifications. ``hosts`` are
    the push services that may be used: names, also of their subdomains.
    """

    def __init__(self, store: Store, key_file: Path, post: PostRequest, hosts: Callable[[], tuple[str, ...]]) -> None:
        self._store = store
        self._key_file = key_file
        self._post = post
        self._hosts = hosts

    @cached_property
    def _key(self) -> "VapidKey":
        from talaria.web.push_encryption import VapidKey  # noqa: PLC0415 (few servers send notifications)

        return VapidKey(self._key_file)

    @property
    def public_key(self) -> str:
        """The public key of this server."""
        return self._key.public

    def check(self, subscription: PushSubscription) -> None:
        """Raise `Refused` for an endpoint that is no known push service, or for unusable keys."""
        parts = urlsplit(subscription.endpoint)
        host = (parts.hostname or "").lower()
        is_known = any(host == one or host.endswith(f".{one}") for one in self._hosts())
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and host == "127.0.0.1")
        if not is_known or not is_safe:
            raise Refused(f"{host or 'This address'} isn't a known push service. Add it to api.push_hosts.")
        from talaria.web.push_encryption import encrypt  # noqa: PLC0415 (few servers send notifications)

        try:
            encrypt(b"", subscription)
        except ValueError as error:
            raise Refused("The keys of this subscription are invalid.") from error

    async def send(self, person: str, notification: WebNotification) -> None:
        """Send a notification to all browsers of a person; failures are logged."""
        try:
            found = await self._store.read(lambda tx: find_subscriptions(tx, person))
        except StoreError as error:
            log.warning("a notification was not sent: %s", error)
            return
        now = datetime.now(UTC)
        due = {browser: one for browser, one in found.items() if not one.is_quiet(now)}
        await asyncio.gather(*(self._send_one(browser, one, notification) for browser, one in due.items()))

    async def _send_one(self, browser: str, subscription: PushSubscription, notification: WebNotification) -> None:
        from talaria.web.push_encryption import encrypt  # noqa: PLC0415 (few servers send notifications)

        try:
            self.check(subscription)
            body = encrypt(make_payload(notification, shows_content=subscription.shows_content), subscription)
            headers = {
                "authorization": self._key.authorize(subscription.endpoint, _CONTACT),
                "content-encoding": "aes128gcm",
                "content-type": "application/octet-stream",
                "ttl": str(_SECONDS_TO_LIVE),
                "urgency": "high" if notification.kind == "asked" else "normal",
            }
            status, _ = await self._post(subscription.endpoint, body, headers)
            if status in _GONE:
                await self._store.write(lambda tx: _delete_same(tx, browser, subscription))
            elif not 200 <= status < 300:
                log.warning("a push service answered %s", status)
        except (TalariaError, ValueError) as error:
            log.warning("a notification was not sent: %s", error)


def make_payload(notification: WebNotification, *, shows_content: bool) -> bytes:
    """Return the message for the service worker; without content it only says what kind of news there is."""
    kind = _TITLES[notification.kind]
    title = notification.title if shows_content and notification.title else kind
    body = notification.text[:_LONGEST_PUSHED] if shows_content else ""
    text = body or (kind if title != kind else "")
    return msgspec.json.encode(PushPayload(title, text, notification.path, notification.path))


def _delete_same(tx: Transaction, browser: str, subscription: PushSubscription) -> None:
    """Delete a subscription unless the browser has a new one."""
    if find_subscriptions(tx, subscription.person).get(browser) == subscription:
        delete_subscription(tx, browser)
