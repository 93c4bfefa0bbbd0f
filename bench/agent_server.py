"""Model server of the benchmarks, in its own process: ``python -m bench.agent_server`` prints its address.

The model name selects the behaviour. ``short`` sends a short text at once. ``ten-at-once`` requests ten tool calls in
one reply and ``ten-in-turn`` ten calls one after the other; both then send the short text. ``slow`` streams for two
minutes, ``two-seconds`` for two seconds. ``mixed`` sends the short text, or 30 MB if the message contains "be long".
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from talaria.testing.model_server import Answer, Ask, Instant, ModelServer, Received, Say

CALLS = 10
_SHORT = Instant("The quick brown fox jumps over the lazy dog, over and over and over. " * 4, chunks=50)

_SLOW = Say("The slow brown fox walks on and on. " * 200, chunks=600, pause=0.2)
_TWO_SECONDS = Say("The brown fox takes two seconds. " * 5 + "This is the end.", chunks=9, pause=0.25)
_LONG = Say("The fox runs on and on, and nobody stops it.\n" * 700_000, chunks=2_000)


def answer(received: Received) -> Answer:
    """Return the model's answer to a request."""
    request = received.json
    results = sum(message["role"] == "tool" for message in request["messages"])
    if request["model"] == "slow":
        return _SLOW
    if request["model"] == "two-seconds":
        return _TWO_SECONDS
    if request["model"] == "mixed":
        return _LONG if "be long" in str(request["messages"][-1]) else _SHORT
    if request["model"] == "short" or results == CALLS:
        return _SHORT
    calls = CALLS if request["model"] == "ten-at-once" else 1
    return Say(calls=[Ask("noted", {"text": f"note {results + offset}"}) for offset in range(calls)], chunks=1)


@asynccontextmanager
async def run_model_server() -> AsyncIterator[str]:
    """Run the server in its own process and yield its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.agent_server", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def _serve() -> None:
    async with ModelServer() as server:

        def answer_unrecorded(received: Received) -> Answer:
            server.received.clear()
            return answer(received)

        server.answering(answer_unrecorded)
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
