"""Floor for a server: ``python -m bench.api_bare`` streams the bytes of an answer without any agent.

It prints its address. The bytes are those of a real answer of Talaria, in the same chunks.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from talaria.api.completions.outgoing import ChunkEncoder, CompletionCollector
from talaria.core.events import TextAdded, TurnAnswered

_TEXT = "The quick brown fox jumps over the lazy dog, over and over and over. " * 4
_CHUNK_COUNT = 50

Message = MutableMapping[str, Any]


def _encode_chunks() -> list[bytes]:
    encoder, answer = ChunkEncoder("talaria", counting=False), CompletionCollector()
    size = len(_TEXT) // _CHUNK_COUNT + 1
    parts = [_TEXT[start : start + size] for start in range(0, len(_TEXT), size)]
    encoded = [encoder.encode_text(answer.take(TextAdded(part))) for part in parts]
    answer.take(TurnAnswered(_TEXT))
    return [encoder.begin(), *encoded, encoder.end(answer)]


_ENCODED_CHUNKS = _encode_chunks()
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Read the request body and stream the answer."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    for chunk in _ENCODED_CHUNKS:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _serve() -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    config = uvicorn.Config(
        application, http="httptools", ws="none", lifespan="off", loop="asyncio", log_config=None, access_log=False
    )
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(_serve())
