"""Rate limits per chat and per network, priority of replies over previews, and pauses that a network requests."""

from datetime import timedelta

import pytest

from talaria.contracts.platform import Rate, Rates
from talaria.core.addresses import Address
from talaria.core.errors import SlowDown
from talaria.gateway.outbound.message_writer import PREVIEW, TYPING, Throttle

ANN, BEN = Address("telegram", "1"), Address("telegram", "2")
GROUP = Address("telegram", "-1", "group")
SELDOM = 1 / 3600
PAUSE = timedelta(hours=1)


def count_allowed(throttle: Throttle, to: Address, share: float = 0.0) -> int:
    """Return how many calls are allowed at once."""
    count = 0
    while count < 1000 and throttle.take(to, share):
        count += 1
    return count


async def test_each_chat_has_its_own_rate_within_the_rate_of_the_network() -> None:
    rates = Rates(network=Rate(SELDOM, 10), chat=Rate(SELDOM, 3), group=Rate(SELDOM, 2))
    throttle = Throttle(rates)
    assert [count_allowed(throttle, one) for one in (ANN, BEN, GROUP)] == [3, 3, 2]
    assert (throttle.free, count_allowed(throttle, Address("telegram", "3"))) == (2, 2)
    assert throttle.network_delay > 3000


async def test_threads_of_a_group_share_its_rate() -> None:
    throttle = Throttle(Rates(group=Rate(SELDOM, 3)))
    thread = Address("telegram", "-1", "thread", "7")
    assert (count_allowed(throttle, thread), count_allowed(throttle, GROUP)) == (3, 0)


async def test_previews_and_typing_leave_capacity_for_replies() -> None:
    throttle = Throttle(Rates(network=Rate(SELDOM, 30)))
    assert count_allowed(throttle, ANN, TYPING) == 6
    assert count_allowed(throttle, ANN, PREVIEW) == 4  # ten calls in all are not replies
    assert count_allowed(throttle, ANN) == 20


async def test_network_without_rates_is_not_limited() -> None:
    assert count_allowed(Throttle(), ANN, TYPING) == 1000


@pytest.mark.parametrize(("everywhere", "others_wait"), [(None, False), (False, False), (True, True)])
async def test_first_pause_applies_to_the_chat_unless_it_is_network_wide(
    everywhere: bool | None, others_wait: bool
) -> None:
    throttle = Throttle()
    throttle.slow_down(ANN, SlowDown("slow down", retry_after=PAUSE, everywhere=everywhere))
    assert throttle.delay(ANN) > 3000
    assert bool(throttle.delay(BEN)) == others_wait


@pytest.mark.parametrize(("everywhere", "others_wait"), [(None, True), (False, False)])
async def test_pause_for_a_second_chat_applies_to_the_network(everywhere: bool | None, others_wait: bool) -> None:
    throttle = Throttle()
    for address in (ANN, BEN):
        throttle.slow_down(address, SlowDown("slow down", retry_after=PAUSE, everywhere=everywhere))
    assert bool(throttle.delay(GROUP)) == others_wait


async def test_two_pauses_for_the_same_chat_delay_no_other_chat() -> None:
    throttle = Throttle()
    for _ in range(2):
        throttle.slow_down(ANN, SlowDown("slow down", retry_after=PAUSE))
    assert throttle.delay(BEN) == 0
