"""The usage page: cost and tokens by day, for guests only their own."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from tests.api.in_process_server import Hosted
from tests.web.web_client import begin

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.messages import Usage
from talaria.runtime.turn_environment import build_monthly_caps
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until


def _spend(tx: Transaction, owner: str, model: str, usage: Usage) -> None:
    session = tx.sessions.create(NewSession(source="telegram", owner=owner))
    tx.usage.add(session.id, usage, model=model, turns=1, has_price=bool(usage.cost_microdollars))


async def test_usage_is_shown_by_model_with_the_most_expensive_first(host: Hosted, owner: httpx.AsyncClient) -> None:
    store = host.application.store
    await store.write(lambda tx: _spend(tx, "", "small", Usage(1, 10, 5, cost_microdollars=100)))
    await store.write(lambda tx: _spend(tx, "alice", "large", Usage(1, 100, 50, 30, cost_microdollars=9_000)))
    await store.write(lambda tx: _spend(tx, "", "local", Usage(3, 1_000, 50)))
    shown = (await owner.get("/web/usage", params={"days": 7})).json()
    today = datetime.now(UTC).date()
    assert (shown["first"], shown["last"]) == (str(today - timedelta(days=6)), str(today))
    assert [one["name"] for one in shown["series"]] == ["large", "small", "local"]
    assert shown["series"][0]["cost"] == [0] * 6 + [9_000]
    assert shown["series"][2]["tokens"] == [0] * 6 + [1_050]
    assert shown["totals"] == shown["today"]
    assert (shown["totals"]["turns"], shown["totals"]["calls"], shown["totals"]["unpriced_calls"]) == (3, 5, 3)
    by_person = (await owner.get("/web/usage", params={"by": "owner"})).json()
    assert [one["name"] for one in by_person["series"]] == ["alice", ""]


async def test_caps_and_the_most_expensive_sessions_are_shown(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    store = host.application.store
    for name, cost in (("small", 100), ("large", 9_000), ("free", 0)):
        await store.write(lambda tx, name=name, cost=cost: _spend(tx, "", name, Usage(1, 1, 1, cost_microdollars=cost)))  # type: ignore[misc]
    await store.write(lambda tx: _spend(tx, "alice", "large", Usage(1, 1, 1, cost_microdollars=500)))
    shown = (await owner.get("/web/usage")).json()
    assert [one["cost_microdollars"] for one in shown["dearest"]] == [9_000, 500, 100]
    assert shown["caps"] == []
    version = (await owner.get("/web/settings")).json()["version"]
    caps = {"budget.total": 20, "budget.person": 5}
    assert (await owner.patch("/web/settings", json={"values": caps, "version": version})).status_code == 200

    def pay(tx: Transaction) -> None:
        for cap in build_monthly_caps(host.application.settings.budget, "alice"):
            tx.ledger.settle(tx.ledger.reserve([cap], 3_000_000, timedelta(minutes=1)), 2_500_000)

    await store.write(pay)
    total = {"name": "total", "limit": 20_000_000, "spent": 2_500_000}
    own = {"name": "person", "limit": 5_000_000, "spent": 0}
    assert (await owner.get("/web/usage")).json()["caps"] == [total, own]
    guests = (await alice.get("/web/usage")).json()
    assert guests["caps"] == [{**own, "spent": 2_500_000}]
    assert [one["cost_microdollars"] for one in guests["dearest"]] == [500]


async def test_a_guest_sees_only_their_own_usage(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    store = host.application.store
    await store.write(lambda tx: _spend(tx, "", "small", Usage(1, 10, 5, cost_microdollars=100)))
    await store.write(lambda tx: _spend(tx, "alice", "large", Usage(1, 100, 50, cost_microdollars=9_000)))
    for group in ("model", "surface", "owner"):
        shown = (await alice.get("/web/usage", params={"by": group})).json()
        assert len(shown["series"]) == 1
        assert shown["totals"]["cost_microdollars"] == 9_000


async def test_turn_is_counted_in_usage_when_it_ends(
    host: Hosted, owner: httpx.AsyncClient, model: ModelServer
) -> None:
    model.otherwise(Say("Hello."))
    await begin(owner, "Hi")

    async def read() -> dict[str, Any]:
        return dict((await owner.get("/web/usage", params={"by": "surface"})).json())

    async def has_ended() -> bool:
        return bool((await read())["totals"]["turns"])

    await until(has_ended)
    shown = await read()
    assert [one["name"] for one in shown["series"]] == ["web"]
    assert (shown["totals"]["turns"], shown["totals"]["calls"]) == (1, 1)


async def test_invalid_usage_query_is_refused(owner: httpx.AsyncClient) -> None:
    for query in ({"days": 0}, {"days": 5_000}, {"by": "session"}):
        assert (await owner.get("/web/usage", params=query)).status_code == 400
