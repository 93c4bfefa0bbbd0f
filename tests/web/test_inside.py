"""Pages for gateway, logs and doctor: only the owner can see and use them."""

import asyncio
import logging
from datetime import timedelta

import httpx
import pytest
from tests.api.in_process_server import Hosted
from tests.web.web_client import stream

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import UNDELIVERED
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.aio import StopSignal
from talaria.gateway.supervisor import follow_restart_requests
from talaria.runtime.outbox import queue_notice
from talaria.runtime.workers import request_restart
from talaria.sessions.chat_directory import GATEWAY

log = logging.getLogger("talaria.tests.inside")
PATHS = ("/web/gateway", "/web/logs", "/web/doctor")


@pytest.mark.parametrize("path", PATHS)
async def test_guests_cannot_open_gateway_logs_and_doctor(alice: httpx.AsyncClient, path: str) -> None:
    assert (await alice.get(path)).status_code == 403


async def test_guests_get_no_events_of_gateway_and_logs(alice: httpx.AsyncClient, host: Hosted) -> None:
    async with stream(alice, "logs", "gateway", "goals") as messages:
        log.warning("something secret")
        await host.application.store.write(lambda tx: tx.notify("goals"))
        async for message in messages:
            if message["topic"] == "changed":
                assert message["page"] == "goals"
                break


async def test_undelivered_messages_can_be_retried_or_deleted(host: Hosted, owner: httpx.AsyncClient) -> None:
    store = host.application.store

    def queue(tx: Transaction) -> None:
        session = tx.sessions.create(NewSession(source="telegram")).id
        for text in ("The first", "The second"):
            queue_notice(tx, session, Address("telegram", "7"), Content(text=text))
        (item,) = tx.outbox.claim("telegram", timedelta(minutes=1), 1)
        tx.outbox.fail(item.id, "the chat was deleted")

    await store.write(queue)
    first, second = (await owner.get("/web/gateway")).json()["outbox"]
    assert (first["text"], first["state"], first["error"]) == ("The first", "failed", "the chat was deleted")
    assert (await owner.post(f"/web/outbox/{first['id']}/retry", json={})).status_code == 200
    assert (await owner.delete(f"/web/outbox/{second['id']}")).status_code == 200
    assert (await owner.delete(f"/web/outbox/{second['id']}")).status_code == 409
    assert (await owner.delete("/web/outbox/none")).status_code == 404
    (left,) = await store.read(lambda tx: tx.outbox.find(UNDELIVERED))
    assert (left.id, left.state, left.attempts) == (first["id"], "waiting", 0)


async def test_a_gateway_is_restarted_on_request(host: Hosted, owner: httpx.AsyncClient) -> None:
    store = host.application.store
    refused = await owner.post("/web/gateway/restart", json={})
    assert refused.status_code == 409
    await store.write(request_restart)  # for a gateway that has ended since
    stop = StopSignal()
    async with asyncio.TaskGroup() as group:
        group.create_task(follow_restart_requests(store, stop))
        await store.write(lambda tx: tx.leases.acquire(GATEWAY, timedelta(minutes=1)))
        assert not stop.is_set()
        assert (await owner.post("/web/gateway/restart", json={})).status_code == 200
        await stop.wait()
    assert stop.restarts


async def test_the_log_is_filtered_and_followed(owner: httpx.AsyncClient) -> None:
    log.info("an otter was seen")
    log.warning("a beaver was seen\nwith a second line")
    warnings = (await owner.get("/web/logs", params={"level": "warning", "text": "BEAVER"})).json()
    assert [(one["level"], one["message"]) for one in warnings["entries"]] == [
        ("warning", "a beaver was seen\nwith a second line")
    ]
    assert warnings["entries"][0]["logger"] == "talaria.tests.inside"
    async with stream(owner, "logs") as messages:
        log.error("a wolf was seen")
        async for message in messages:
            if message == {"topic": "changed", "page": "logs"}:
                more = (await owner.get("/web/logs", params={"after": warnings["end"]})).json()["entries"]
                if more:
                    break
    assert [one["message"] for one in more] == ["a wolf was seen"]


async def test_doctor_page_runs_checks_without_calling_the_provider(owner: httpx.AsyncClient, host: Hosted) -> None:
    checks = {one["name"]: one for one in (await owner.get("/web/doctor")).json()["checks"]}
    assert {"python", "files", "settings", "model", "store", "disk"} <= checks.keys()
    assert checks["settings"]["state"] == "ok"
    assert str(host.application.profile.config_file) in checks["settings"]["findings"][0]["found"]
