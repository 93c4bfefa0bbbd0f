"""Floor for a server: ``python -m bench.api_bare`` streams the bytes of an answer without any agent.

It prints its address. The bytes are those of a real answer of ours, in the same pieces.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from talaria.api.completions.outgoing import ChunkEncoder, CompletionCollector
from talaria.core.events import TextAdded, TurnAnswered

_WORDS = "The quick brown fox jumps over the lazy dog, over and over and over. " * 4
_CHUNKS = 50

Message = MutableMapping[str, Any]


def _pieces() -> list[bytes]:
    chunks, answer, size = ChunkEncoder("talaria", counting=False), CompletionCollector(), len(_WORDS) // _CHUNKS + 1
    words = [_WORDS[place : place + size] for place in range(0, len(_WORDS), size)]
    said = [chunks.words(answer.take(TextAdded(word))) for word in words]
    answer.take(TurnAnswered(_WORDS))
    return [chunks.begin(), *said, chunks.end(answer)]


_PIECES = _pieces()
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Take the body and stream the answer."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    for piece in _PIECES:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _serve() -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(1024)
    config = uvicorn.Config(
        application, http="httptools", ws="none", lifespan="off", loop="asyncio", log_config=None, access_log=False
    )
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(_serve())
