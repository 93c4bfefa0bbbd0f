"""Serve scripted replies until killed: ``python -m talaria.testing.model_server``."""

import argparse
import asyncio
import sys

from talaria.testing.model_server import Answer, Instant, ModelServer, Received, Say


def main() -> None:
    """Print the address on the first line, then serve clients."""
    try:
        asyncio.run(_serve(_make_parser().parse_args()))
    except KeyboardInterrupt:
        sys.exit(130)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m talaria.testing.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port on loopback; a free one if not given")
    parser.add_argument("--reply", default="Hello from the scripted model.", help="what to answer")
    parser.add_argument("--chunks", type=int, help="number of pieces to stream; by default word by word")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two pieces")
    parser.add_argument("--echo", action="store_true", help="repeat the user's last message instead")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    fixed = _make_answer(options)
    async with ModelServer(port=options.port) as server:

        def answer(received: Received) -> Answer:
            server.received.clear()  # nobody reads them here, and a long run would fill the memory
            return Say(received.question, chunks=options.chunks, pause=options.pause) if options.echo else fixed

        server.answering(answer)
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _make_answer(options: argparse.Namespace) -> Answer:
    if options.pause:
        return Say(options.reply, chunks=options.chunks, pause=options.pause)
    return Instant(options.reply, chunks=options.chunks or len(options.reply.split()))


if __name__ == "__main__":
    main()
