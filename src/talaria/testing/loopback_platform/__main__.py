"""Serve a loopback network until killed: ``python -m talaria.testing.loopback_platform``."""

import argparse
import asyncio
import sys

import msgspec

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import CHATTY, LoopbackNetwork


def main() -> None:
    """Print the address on the first line, then serve clients."""
    try:
        asyncio.run(_serve(_make_parser().parse_args()))
    except KeyboardInterrupt:
        sys.exit(130)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m talaria.testing.loopback_platform", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port on loopback; a free one if not given")
    parser.add_argument("--token", default="", help="the token that accounts log in with")
    parser.add_argument("--abilities", default="", help='as JSON, for example {"text_limit": 500, "idempotent": true}')
    return parser


async def _serve(options: argparse.Namespace) -> None:
    abilities = msgspec.json.decode(options.abilities, type=PlatformCapabilities) if options.abilities else CHATTY
    async with LoopbackNetwork(abilities, token=options.token, port=options.port) as network:
        sys.stdout.write(f"{network.address}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
