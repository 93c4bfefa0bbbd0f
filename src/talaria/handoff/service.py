"""Handoff service: request, await and cancel a handoff; shared by slash commands, the CLI and the API."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from talaria.contracts.store import Database, Store, Transaction
from talaria.contracts.stores.handoffs import HandoffState
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound, Refused
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId
from talaria.handoff.handoff import (
    DELETED,
    HANDOFFS,
    REFUSALS,
    TIMED_OUT,
    HandoffRefused,
    HandoffRequest,
    RefusalCode,
    handoff_topic,
)
from talaria.runtime.workers import is_gateway_alive
from talaria.sessions.chat_directory import find_target

POLL_SECONDS = 1.0
_BLOCKING_POLL_SECONDS = 0.05
_UNFINISHED = ("pending", "running")
_DELETED = HandoffState(state="failed", platform=None, error=DELETED)


async def request_handoff(
    store: Store, request: HandoffRequest, networks: Mapping[str, bool], *, is_busy: bool = False
) -> None:
    """Store a request, which notifies the gateways; raises `HandoffRefused`.

    ``networks`` maps each known network to whether it is configured; ``is_busy`` is true if the requester runs a turn
    itself.
    """
    await store.write(lambda tx: write_request(tx, request, networks, is_busy=is_busy))


def write_request(
    tx: Transaction, request: HandoffRequest, networks: Mapping[str, bool], *, is_busy: bool = False
) -> None:
    """Store a request, or raise `HandoffRefused` with the first reason against it."""
    target = _resolve_target(tx, request, networks)
    if not request.immediate and (is_busy or tx.turns.find(request.session_id, running=True, limit=1)):
        raise _refuse(RefusalCode.TURN_RUNNING)
    if not is_gateway_alive(tx):
        raise _refuse(RefusalCode.NO_GATEWAY)
    request_handoff_to(tx, request.session_id, target, immediate=request.immediate)


def request_handoff_to(tx: Transaction, session_id: SessionId, target: Address, *, immediate: bool = False) -> None:
    """Store a request without further checks; raises `HandoffRefused` if a handoff is in progress."""
    if not tx.handoffs.request_handoff(session_id, target.platform, target=target, immediate=immediate):
        raise _refuse(RefusalCode.IN_PROGRESS)
    tx.notify(HANDOFFS)


async def wait_for_handoff(
    store: Store,
    session_id: SessionId,
    seconds: float,
    *,
    poll_seconds: float = POLL_SECONDS,
    on_progress: Callable[[HandoffState], None] = lambda _: None,
) -> HandoffState:
    """Return the final state of a handoff; one that is not done within ``seconds`` is withdrawn.

    Waits for notifications, and checks every ``poll_seconds`` in case one is lost. ``on_progress`` is called after each
    check of an unfinished handoff.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    async with store.subscribe(handoff_topic(session_id)) as subscription:
        while (remaining := deadline - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(poll_seconds, remaining)):
                    await subscription.wait()
            state = await store.read(lambda tx: read_state(tx, session_id))
            if state["state"] not in _UNFINISHED:
                return state
            on_progress(state)
    return await store.write(lambda tx: _withdraw_late(tx, session_id, seconds))


def wait_for_handoff_blocking(database: Database, session_id: SessionId, seconds: float) -> HandoffState:
    """Wait for a handoff like `wait_for_handoff`, in a program without an event loop; polls the store."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = database.read(lambda tx: read_state(tx, session_id))
        if state["state"] not in _UNFINISHED:
            return state
        time.sleep(_BLOCKING_POLL_SECONDS)
    return database.write(lambda tx: _withdraw_late(tx, session_id, seconds))


async def cancel_handoff(store: Store, session_id: SessionId, reason: str) -> bool:
    """Withdraw the handoff of a session; ``False`` if none is pending or running."""

    def withdraw(tx: Transaction) -> bool:
        tx.notify(handoff_topic(session_id))
        return tx.handoffs.withdraw_handoff(session_id, reason)

    return await store.write(withdraw)


def read_state(tx: Transaction, session_id: SessionId) -> HandoffState:
    """Return the state of a handoff; for a deleted session it is failed."""
    return tx.handoffs.get_handoff_state(session_id) or _DELETED


def _withdraw_late(tx: Transaction, session_id: SessionId, seconds: float) -> HandoffState:
    tx.handoffs.withdraw_handoff(session_id, TIMED_OUT.format(seconds=seconds))
    return read_state(tx, session_id)


def _resolve_target(tx: Transaction, request: HandoffRequest, networks: Mapping[str, bool]) -> Address:
    platform, chat = request.platform, request.target.partition(":")[2].strip()
    if not networks:
        raise _refuse(RefusalCode.NO_NETWORK)
    if not networks.get(platform, True):
        raise _refuse(RefusalCode.NOT_CONFIGURED, platform)
    try:
        return find_target(tx, f"{platform}:{chat}", networks)
    except (NotFound, Ambiguous, Refused) as error:
        code = RefusalCode.UNKNOWN_TARGET if chat else RefusalCode.NO_HOME_CHAT
        raise HandoffRefused(code if platform in networks else RefusalCode.UNKNOWN_PLATFORM, str(error)) from error


def _refuse(code: RefusalCode, platform: str = "") -> HandoffRefused:
    return HandoffRefused(code, REFUSALS[code].format(platform=platform_label(platform)))
