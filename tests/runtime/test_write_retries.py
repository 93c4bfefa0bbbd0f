"""Retries of writes that the store refuses."""

import asyncio
import threading
import time

import pytest

from talaria.core.aio import retry_write
from talaria.core.errors import LeaseLost, StoreBusy, StoreError, StoreFull, StoreGone, StoreUnavailable


class FailingWrite:
    """A write that raises these errors before it succeeds."""

    def __init__(self, *errors: StoreError) -> None:
        self._errors = list(errors)
        self.attempts = 0

    async def __call__(self) -> str:
        self.attempts += 1
        if self._errors:
            raise self._errors.pop(0)
        return "written"


@pytest.mark.parametrize("error", [StoreBusy("busy"), StoreFull("full"), StoreGone("gone")])
async def test_refused_write_is_retried(error: StoreError) -> None:
    write = FailingWrite(error)
    assert await retry_write(write) == "written"
    assert write.attempts == 2


@pytest.mark.parametrize("error", [LeaseLost("lost"), StoreUnavailable("perhaps it was written")])
async def test_error_that_a_retry_cannot_fix_is_raised(error: StoreError) -> None:
    write = FailingWrite(error)
    with pytest.raises(type(error)):
        await retry_write(write)
    assert write.attempts == 1


async def test_write_finished_while_the_loop_was_blocked_gives_no_notice() -> None:
    notices: list[str] = []
    loop = asyncio.get_running_loop()

    async def write() -> str:
        done = loop.create_future()
        writer = threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set_result, "written"))
        writer.start()
        writer.join()
        blocked_until = time.monotonic() + 0.2
        while time.monotonic() < blocked_until:
            pass
        return str(await done)

    assert await retry_write(write, lambda: notices.append("held up"), patience=0.05) == "written"
    assert notices == []


async def test_notice_is_shown_once_while_the_store_refuses_writes() -> None:
    notices: list[str] = []

    async def write() -> str:
        if not notices:
            raise StoreBusy("busy")
        return "written"

    assert await retry_write(write, lambda: notices.append("held up"), patience=0.05) == "written"
    assert notices == ["held up"]
