"""Cost caps apply across parallel turns and processes, on every engine."""

import asyncio
import random

import pytest
from tests.storage.engines import StoreLocation

from talaria.contracts.provider import ModelInfo
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.turns import Cap
from talaria.core.errors import OverBudget, PriceUnknown
from talaria.runtime.turn_environment import StoredBudget
from talaria.testing.clock import SettableClock

PRICED = ModelInfo(name="large", input_price=1, output_price=1)
ALL, ANN = Cap("all", 1_000), Cap("person:ann", 400)


async def spent(store: Store, account: str) -> int:
    return await store.read(lambda tx: tx.ledger.read_spent(account))


async def test_reserved_amount_is_unavailable_until_it_is_settled(store: Store) -> None:
    budget = StoredBudget(store, [ANN])
    hold = await budget.reserve(300, PRICED)
    with pytest.raises(OverBudget):
        await budget.reserve(200, PRICED)
    await budget.settle(hold, 50)
    assert await budget.reserve(350, PRICED)
    assert await spent(store, "person:ann") == 50


async def test_every_cap_applies_and_the_exceeded_one_is_named(store: Store) -> None:
    ann, all_people = StoredBudget(store, [ALL, ANN]), StoredBudget(store, [ALL])
    await all_people.reserve(700, PRICED)
    with pytest.raises(OverBudget) as over:
        await ann.reserve(350, PRICED)
    assert over.value.account == "all"
    await ann.reserve(300, PRICED)
    with pytest.raises(OverBudget):
        await all_people.reserve(1, PRICED)


async def test_refused_reservation_changes_no_account(store: Store) -> None:
    with pytest.raises(OverBudget):
        await StoredBudget(store, [ALL, ANN]).reserve(401, PRICED)
    assert await StoredBudget(store, [ALL]).reserve(1_000, PRICED)


async def test_changed_caps_apply_to_the_next_call(store: Store) -> None:
    caps: list[Cap] = []
    budget = StoredBudget(store, lambda tx: caps)
    assert await budget.reserve(10_000, PRICED) is None
    caps.append(ANN)
    with pytest.raises(OverBudget):
        await budget.reserve(401, PRICED)
    hold = await budget.reserve(400, PRICED)
    caps.clear()
    await budget.settle(hold, 300)
    assert await budget.reserve(10_000, PRICED) is None
    assert await spent(store, "person:ann") == 300


async def test_64_parallel_turns_in_two_processes_never_exceed_a_cap(
    store_location: StoreLocation, clock: SettableClock, store: Store
) -> None:
    other = store_location.open_store(clock, "worker-2")
    settled = refused = 0

    async def take_turn(number: int) -> None:
        nonlocal refused, settled
        chance = random.Random(number)
        budget = StoredBudget(store if number % 2 else other, [ALL, Cap(f"session:{number}", 90)])
        for _ in range(5):
            amount = chance.randint(1, 60)
            try:
                hold = await budget.reserve(amount, PRICED)
            except OverBudget:
                refused += 1
                continue
            await asyncio.sleep(0)
            used = chance.randint(amount // 2, amount)
            await budget.settle(hold, used)
            settled += used

    async with asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(take_turn(number))
    await other.close()
    assert refused > 0

    def accounts(tx: Transaction) -> list[int]:
        return [tx.ledger.read_spent(f"session:{number}") for number in range(64)]

    each = await store.read(accounts)
    assert max(each) <= 90
    assert await spent(store, "all") == sum(each) == settled <= 1_000


async def test_cap_refuses_a_model_without_a_price_and_shows_how_to_set_one(store: Store) -> None:
    with pytest.raises(PriceUnknown) as unknown:
        await StoredBudget(store, [ALL]).reserve(1, ModelInfo(name="own/new-model"))
    assert "talaria config set models.'\"own/new-model\"'.input_price PRICE" in unknown.value.for_owner
    assert "own/new-model" not in unknown.value.public
    assert await StoredBudget(store, []).reserve(1, ModelInfo(name="own/new-model")) is None


async def test_a_free_model_is_allowed_under_a_cap(store: Store) -> None:
    assert await StoredBudget(store, [ALL]).reserve(1, ModelInfo(name="local", free=True)) is not None
