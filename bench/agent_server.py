"""Model server of the benchmarks, in its own process: ``python -m bench.agent_server`` prints its address.

The name of the model says what it does: ``words`` answers at once, ``ten-at-once`` asks for ten tool calls in one
reply and ``ten-in-turn`` for ten one after the other, before they answer; ``slow`` takes minutes for its words and
``two-seconds`` two. ``mixed`` answers at once, or with 30 MB where it is asked to be long.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from talaria.testing.model_server import Answer, Ask, Instant, ModelServer, Received, Say

CALLS = 10
_WORDS = Instant("The quick brown fox jumps over the lazy dog, over and over and over. " * 4, chunks=50)

_SLOW = Say("The slow brown fox walks on and on. " * 200, chunks=600, pause=0.2)
_TWO_SECONDS = Say("The brown fox takes two seconds. " * 5 + "This is the end.", chunks=9, pause=0.25)
_LONG = Say("The fox runs on and on, and nobody stops it.\n" * 700_000, chunks=2_000)


def answer(received: Received) -> Answer:
    """Return what the model says to a request."""
    asked = received.json
    done = sum(message["role"] == "tool" for message in asked["messages"])
    if asked["model"] == "slow":
        return _SLOW
    if asked["model"] == "two-seconds":
        return _TWO_SECONDS
    if asked["model"] == "mixed":
        return _LONG if "be long" in str(asked["messages"][-1]) else _WORDS
    if asked["model"] == "words" or done == CALLS:
        return _WORDS
    calls = CALLS if asked["model"] == "ten-at-once" else 1
    return Say(calls=[Ask("noted", {"text": f"note {done + number}"}) for number in range(calls)], chunks=1)


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """Run the server in a process of its own and yield its address."""
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

        def forgetful(received: Received) -> Answer:
            server.received.clear()
            return answer(received)

        server.answering(forgetful)
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
