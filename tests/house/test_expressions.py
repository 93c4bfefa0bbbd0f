"""No regular expression of the source takes more than linear time on foreign text."""

from asyncio.subprocess import PIPE

import pytest
from tests.app.warm_program import start_module


@pytest.mark.timeout(600)
async def test_no_expression_takes_more_than_linear_time() -> None:
    process = await start_module("tests.house.expressions", stdout=PIPE)
    assert process.stdout is not None
    assert (await process.stdout.read()).decode().splitlines() == []
    assert await process.wait() == 0
