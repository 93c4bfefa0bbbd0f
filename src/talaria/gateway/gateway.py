"""The long-running process that serves every chat: networks, rooms and deliveries, side by side."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, structs

from talaria.agent.model_health import ModelHealth, ModelState
from talaria.contracts.store import Store
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId
from talaria.gateway.delivery import Delivery
from talaria.gateway.intake import Intake
from talaria.gateway.network import Network
from talaria.gateway.presence import Presence
from talaria.gateway.rooms import Rooms
from talaria.sessions.presence import ModelStatus, NetworkStatus, WorkerStatus

_LOOK_AGAIN = 0.05

log = logging.getLogger(__name__)


class Line(Struct, frozen=True):
    """One network in both directions."""

    network: Network
    delivery: Delivery
    intake: Intake


class Gateway:
    """Runs until told to stop, then lets turns end and replies go out, for as long as ``patience`` lasts.

    ``beside`` are what else goes on until then. ``missing`` are the networks that could not be opened, ``models`` is
    how those do that were asked, and ``mask`` hides secrets. ``troubles`` are sentences for the status, each by what it
    is about.
    """

    def __init__(
        self,
        store: Store,
        version: str,
        lines: Sequence[Line],
        rooms: Rooms,
        *,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        lease: timedelta,
        patience: timedelta,
    ) -> None:
        self.lines = lines
        self._rooms = rooms
        self._beside = beside
        self.missing: Sequence[NetworkStatus] = ()
        self._patience = patience.total_seconds()
        self._version = version
        self.started = datetime.now(UTC)
        self.address = ""
        self.troubles: dict[str, str] = {}
        self.models = ModelHealth()
        self.mask: Callable[[str], str] = str
        self.stopping = False
        self.turns_at_stop = 0
        self._cut_off: tuple[SessionId, ...] = ()
        self._lease = lease
        self.presence = Presence(store, rooms.worker, self.status, lease, rooms.give_up_lost)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set."""
        async with asyncio.TaskGroup() as group:
            receiving = [group.create_task(line.network.serve()) for line in self.lines]
            receiving += [group.create_task(serve()) for serve in (self._rooms.serve, *self._beside)]
            delivering = [group.create_task(line.delivery.serve()) for line in self.lines]
            delivering.append(group.create_task(self.presence.serve()))
            await stop.wait()
            self.stopping, self.turns_at_stop = True, len(self._rooms.busy)
            for task in receiving:
                task.cancel()
            await self._within(self._rooms_are_idle, "turns were cut off; they go on at the next start")
            self._cut_off = self._at_work()
            await self._rooms.close()
            await self._within(self._all_is_delivered, "replies wait in the outbox; they go out at the next start")
            for task in delivering:
                task.cancel()

    def status(self) -> WorkerStatus:
        """How this process is doing; what others have said of their troubles is masked."""
        networks = (*(line.network.status for line in self.lines), *self.missing)
        return WorkerStatus(
            worker=self._rooms.worker,
            pid=os.getpid(),
            host=os.uname().nodename,
            started=self.started,
            at=datetime.now(UTC),
            version=self._version,
            lease=self._lease.total_seconds(),
            address=self.address,
            networks=tuple(structs.replace(one, error=self.mask(one.error)) for one in networks),
            rooms=len(self._rooms),
            turns=len(self._rooms.busy),
            error=self.mask(" ".join(filter(None, (*self.troubles.values(), self.presence.trouble)))),
            models=tuple(self._model_status(one) for one in self.models.states if one.error),
        )

    @property
    def unfinished(self) -> tuple[SessionId, ...]:
        """The conversations in which a turn was cut off by the end, or would be if this were the end."""
        return self._cut_off or self._at_work()

    def _at_work(self) -> tuple[SessionId, ...]:
        return tuple(room.seat.session_id for room in self._rooms.busy)

    async def _within(self, done: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while not await done():  # noqa: ASYNC110 - other processes may be the ones who finish it
                    await asyncio.sleep(_LOOK_AGAIN)
        except (TimeoutError, StoreError) as error:
            log.warning("the gateway ends before all is done: %s (%s)", otherwise, str(error) or "time is up")

    async def _rooms_are_idle(self) -> bool:
        """Tell whether nothing goes on but turns that wait for a person's word."""
        return all(room.seat.chat.questions.waiting for room in self._rooms.busy)

    async def _all_is_delivered(self) -> bool:
        for line in self.lines:
            if line.network.status.state == "connected" and not await line.delivery.is_idle():
                return False
        return True

    def _model_status(self, state: ModelState) -> ModelStatus:
        return ModelStatus(name=state.model, error=self.mask(state.error), since=state.since, failures=state.failures)
