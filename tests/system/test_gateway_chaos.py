"""Short form of `python -m bench chaos`: a gateway that is killed repeatedly loses nothing."""

import signal
from pathlib import Path

import pytest
from bench.chaos import IDEMPOTENT, PLAIN, ChaosScenario, run_chaos
from tests.system.gateway_workers import start_warm_gateway

from talaria.contracts.platform import PlatformCapabilities


@pytest.mark.parametrize(
    ("by", "abilities"),
    [(signal.SIGKILL, PLAIN), (signal.SIGKILL, IDEMPOTENT), (signal.SIGTERM, PLAIN)],
    ids=["killed", "killed-idempotent", "ended"],
)
async def test_every_message_is_answered_once_and_in_order(
    tmp_path: Path, by: signal.Signals, abilities: PlatformCapabilities
) -> None:
    scenario = ChaosScenario(messages=60, chats=6, kills=4, by=by, abilities=abilities)
    result = await run_chaos(scenario, tmp_path, seed=7, start=start_warm_gateway)
    assert (result.missing, result.answered_twice, result.out_of_order) == (0, 0, 0)
    in_doubt = scenario.kills * scenario.chats if by == signal.SIGKILL and not abilities.idempotent else 0
    assert result.posted_twice <= in_doubt
