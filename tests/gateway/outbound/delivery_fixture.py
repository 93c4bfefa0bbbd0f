"""Delivery between a real store and a network on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Self

from msgspec import Struct

from talaria.contracts.platform import Content, Platform
from talaria.contracts.store import Store
from talaria.contracts.stores.queues import OutboxItem
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.ids import SessionId, TurnId
from talaria.gateway.outbound.delivery import Delivery
from talaria.gateway.outbound.message_writer import DeliveryPolicy
from talaria.runtime.outbox import queue_reply
from talaria.settings.model import LiveSettings, Settings
from talaria.settings.sections.chats import GatewaySettings
from talaria.testing.wait import until

SESSION = SessionId("s")
HERE = Address("loopback", "1")
TO_HERE = ReplyRoute(HERE)
QUICK = DeliveryPolicy(
    call=timedelta(seconds=2),
    poll=timedelta(milliseconds=50),
    first_pause=timedelta(milliseconds=20),
    longest_pause=timedelta(milliseconds=200),
    grace=timedelta(seconds=2),
    quiet=timedelta(seconds=1),
)


class OutboxFixture(Struct):
    """Queue replies in the outbox and look at their state."""

    store: Store

    async def reply(self, turn: str, text: str, address: Address = HERE, reply_to: str = "") -> None:
        """Queue a reply as the end of a turn does."""
        await self.queue(turn, Content(text=text), ReplyRoute(address, reply_to))

    async def queue(self, turn: str, content: Content, route: ReplyRoute = TO_HERE) -> None:
        """Queue content for a route."""
        await self.store.write(lambda tx: queue_reply(tx, SESSION, TurnId(turn), route, content))

    async def undelivered(self) -> list[OutboxItem]:
        """Return the items that are not sent."""
        return await self.store.read(lambda tx: tx.outbox.find())

    async def until(self, condition: Callable[[list[OutboxItem]], bool]) -> list[OutboxItem]:
        """Wait until the condition holds for the undelivered items, and return them."""

        async def look() -> tuple[list[OutboxItem], ...]:
            items = await self.undelivered()
            return (items,) if condition(items) else ()

        return (await until(look))[0]

    async def until_empty(self) -> Self:
        """Wait until everything is sent."""
        await self.until(lambda items: not items)
        return self


@asynccontextmanager
async def delivering(
    store: Store,
    platform: Platform,
    pace: DeliveryPolicy = QUICK,
    *,
    reply_limit: int = 200_000,
    files: Path | None = None,
) -> AsyncIterator[Delivery]:
    """Deliver while the block runs."""
    settings = LiveSettings(Settings(gateway=GatewaySettings(reply_characters=reply_limit)))
    delivery = Delivery(store, platform, pace=pace, settings=settings, files=files)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(delivery.serve())
        try:
            yield delivery
        finally:
            task.cancel()
