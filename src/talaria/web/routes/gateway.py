"""Routes of the gateway page: processes, networks, undelivered messages and handoffs; owner only."""

from datetime import datetime

from msgspec import MsgspecError, Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxFilter, OutboxItem, OutboxState
from talaria.http.errors import make_conflict, make_not_found
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.outbox import read_content, requeue_outgoing
from talaria.runtime.workers import WorkerStatus, is_gateway_alive, read_workers, request_restart
from talaria.web.front_door import AGENT_OWNER, WebRequest
from talaria.web.wire import Done

_TAG = "web"
_MOST_ITEMS = 100
_TEXT_LENGTH = 300


class OutboxView(Struct, frozen=True, kw_only=True):
    """A message that is not delivered yet, and why."""

    id: int
    session_id: str
    platform: str
    chat: str
    text: str
    state: OutboxState
    attempts: int
    error: str
    created_at: datetime


class HandoffView(Struct, frozen=True):
    """A handoff under way."""

    session_id: str
    title: str
    platform: str


class GatewayView(Struct, frozen=True):
    """The gateway processes, the oldest undelivered messages, and the handoffs under way."""

    workers: list[WorkerStatus]
    outbox: list[OutboxView]
    handoffs: list[HandoffView]


class GatewayRoutes:
    """The state of the gateway, and what the owner can do about it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/gateway", handler=self._show, summary="Show the gateway", scope=AGENT_OWNER,
                  reply_type=GatewayView, tag=_TAG),
            Route(method="POST", path="/web/gateway/restart", handler=self._restart, summary="Restart the gateway",
                  scope=AGENT_OWNER, reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/outbox/{item_id}/retry", handler=self._retry,
                  summary="Deliver a message again now", scope=AGENT_OWNER, reply_type=Done, tag=_TAG),
            Route(method="DELETE", path="/web/outbox/{item_id}", handler=self._drop,
                  summary="Give up on an undelivered message", scope=AGENT_OWNER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        return make_json_reply(await self._store.read(_read_gateway))

    async def _restart(self, request: WebRequest) -> Reply:
        def restart(tx: Transaction) -> None:
            if not is_gateway_alive(tx):
                raise make_conflict("No gateway is running. Start one with `talaria gateway start`.", code="no_gateway")
            request_restart(tx)

        await self._store.write(restart)
        return make_json_reply(Done())

    async def _retry(self, request: WebRequest) -> Reply:
        item_id = _read_number(request)
        if not await self._store.write(lambda tx: requeue_outgoing(tx, item_id)):
            raise make_conflict("This message is being sent, or was already.", code="not_waiting")
        return make_json_reply(Done())

    async def _drop(self, request: WebRequest) -> Reply:
        item_id = _read_number(request)
        if not await self._store.write(lambda tx: tx.outbox.drop(item_id)):
            raise make_conflict("This message is being sent, or was already.", code="not_waiting")
        return make_json_reply(Done())


def _read_gateway(tx: Transaction) -> GatewayView:
    handoffs = [*tx.handoffs.list_pending_handoffs(), *tx.handoffs.list_lapsed_handoffs()]
    return GatewayView(
        read_workers(tx),
        [_to_view(item) for item in tx.outbox.find(OutboxFilter(limit=_MOST_ITEMS))],
        [HandoffView(one.session_id, one.title, one.platform) for one in handoffs],
    )


def _to_view(item: OutboxItem) -> OutboxView:
    try:
        text = read_content(item.payload).text
    except MsgspecError:
        text = ""
    return OutboxView(
        id=item.id,
        session_id=item.session_id,
        platform=item.address.platform,
        chat=item.address.chat_id,
        text=text[:_TEXT_LENGTH],
        state=item.state,
        attempts=item.attempts,
        error=item.error,
        created_at=item.created_at,
    )


def _read_number(request: WebRequest) -> int:
    name = request.parts["item_id"]
    if not (name.isascii() and name.isdecimal() and len(name) < 19):
        raise make_not_found("There is no such message.", code="message_not_found")
    return int(name)
