"""Handoff service: every refusal has its code, and the requester learns of the end by a notification."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.storage.engines import StoreLocation

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import HandoffState, NewSession
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.handoff.service import (
    HandoffRefused,
    HandoffRequest,
    RefusalCode,
    cancel_handoff,
    request_handoff,
    wait_for_handoff,
    wait_for_handoff_blocking,
)
from talaria.sessions.chat_directory import GATEWAY, HomeChat, write_home

NETWORKS = {"telegram": True, "discord": False}
HOME = Address("telegram", "77", "group")
HOUR = 3600.0


@pytest.fixture
async def store(store_location: StoreLocation) -> AsyncIterator[Store]:
    opened = store_location.open_store(SystemClock())
    yield opened
    await opened.close()


async def begin_session(store: Store) -> SessionId:
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="cli")))
    return session.id


async def start_gateway(store: Store) -> None:
    await store.write(lambda tx: write_home(tx, HomeChat(HOME)))
    await store.write(lambda tx: tx.leases.acquire(GATEWAY, timedelta(hours=1)))


async def refusal(store: Store, request: HandoffRequest, *, is_busy: bool = False) -> RefusalCode:
    with pytest.raises(HandoffRefused) as refused:
        await request_handoff(store, request, NETWORKS, is_busy=is_busy)
    assert str(refused.value)
    return refused.value.code


async def test_each_refusal_has_its_code(store: Store) -> None:
    session_id = await begin_session(store)
    request = HandoffRequest(session_id, " Telegram ")
    with pytest.raises(HandoffRefused) as refused:
        await request_handoff(store, request, {})
    assert refused.value.code is RefusalCode.NO_NETWORK
    assert await refusal(store, HandoffRequest(session_id, "pigeon:x")) is RefusalCode.UNKNOWN_PLATFORM
    assert await refusal(store, HandoffRequest(session_id, "discord")) is RefusalCode.NOT_CONFIGURED
    assert await refusal(store, request) is RefusalCode.NO_HOME_CHAT
    assert await refusal(store, HandoffRequest(session_id, "telegram:Nobody")) is RefusalCode.UNKNOWN_TARGET
    await store.write(lambda tx: write_home(tx, HomeChat(HOME)))
    assert await refusal(store, request, is_busy=True) is RefusalCode.TURN_RUNNING
    assert await refusal(store, request) is RefusalCode.NO_GATEWAY
    await start_gateway(store)
    await request_handoff(store, request, NETWORKS)
    assert await refusal(store, request) is RefusalCode.IN_PROGRESS


async def test_immediate_request_is_accepted_during_a_turn(store: Store) -> None:
    session_id = await begin_session(store)
    await start_gateway(store)
    await request_handoff(store, HandoffRequest(session_id, "telegram", immediate=True), NETWORKS, is_busy=True)
    (handoff,) = await store.read(lambda tx: tx.handoffs.list_pending_handoffs())
    assert (handoff.target, handoff.immediate) == (HOME, True)


async def test_requester_is_notified_of_the_end(store: Store) -> None:
    session_id = await begin_session(store)
    await start_gateway(store)
    await request_handoff(store, HandoffRequest(session_id, "telegram"), NETWORKS)
    seen = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(
            wait_for_handoff(store, session_id, HOUR, poll_seconds=HOUR, on_progress=lambda _: seen.set())
        )
        await seen.wait()
        assert await cancel_handoff(store, session_id, "you cancelled it")
    assert waiting.result() == HandoffState(state="failed", platform="telegram", error="you cancelled it")
    assert not await cancel_handoff(store, session_id, "again")


async def test_late_handoff_is_withdrawn(store: Store) -> None:
    session_id = await begin_session(store)
    await start_gateway(store)
    await request_handoff(store, HandoffRequest(session_id, "telegram"), NETWORKS)
    end = await wait_for_handoff(store, session_id, 0.01)
    assert end == HandoffState(state="failed", platform="telegram", error="no gateway finished it within 0.01 s")
    assert await store.read(lambda tx: tx.handoffs.list_pending_handoffs()) == []


def test_late_handoff_is_withdrawn_without_an_event_loop(store_location: StoreLocation) -> None:
    database = store_location.open(SystemClock())
    session_id = database.write(lambda tx: tx.sessions.create(NewSession(source="cli"))).id
    database.write(lambda tx: tx.handoffs.request_handoff(session_id, "telegram"))
    end = wait_for_handoff_blocking(database, session_id, 0.01)
    assert end == HandoffState(state="failed", platform="telegram", error="no gateway finished it within 0.01 s")
    database.close()


async def test_handoff_of_a_deleted_session_is_reported_as_failed(store: Store) -> None:
    end = await wait_for_handoff(store, SessionId("gone"), HOUR)
    assert end == HandoffState(state="failed", platform=None, error="the conversation was deleted")
