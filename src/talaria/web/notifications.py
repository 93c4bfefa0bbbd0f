"""Notifications for people: to the pages that are open, and to their devices if no page is visible."""

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from talaria.access.pairing import PAIRING_TOPIC
from talaria.contracts.store import Store
from talaria.contracts.stores.access import PairedPerson
from talaria.core.errors import StoreError
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId
from talaria.web.hub import LiveHub
from talaria.web.wire import NoticeMessage

NotificationKind = Literal["asked", "answered", "delivered", "pairing"]
_LONGEST_TEXT = 300


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
