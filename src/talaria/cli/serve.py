"""`talaria serve`: the agent over HTTP, for programs that speak OpenAI's API."""

import argparse
import asyncio
import os
import signal
from contextlib import AsyncExitStack

import msgspec

from talaria.cli.services import Services
from talaria.cli.terminal import Terminal
from talaria.sessions.company import first_error
from talaria.sessions.ending import Stop

_LAST_PORT = 65_535
_EPILOG = """\
Without options it listens where the settings `api.host` and `api.port` say. On
loopback no key is needed as long as there is none; `talaria api-keys create`
makes one. Anywhere else it does not listen without a key.

Ctrl-C lets what is being worked on come to its end for a while; a second one
cuts it off. With `--json` a line tells where it listens as soon as it does.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = _EPILOG
    parser.add_argument("--host", metavar="ADDRESS", default="", help="the address to listen at")
    parser.add_argument("--port", metavar="PORT", type=_port, help="the port; 0 takes any that is free")
    parser.add_argument("--json", action="store_true", help="print where it listens as JSON, in one line")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Serve until Ctrl-C and return the exit code."""
    try:
        asyncio.run(_serve(arguments, services))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return 0


async def _serve(arguments: argparse.Namespace, services: Services) -> None:
    stop, loop = Stop(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(number, stop.because, signal.Signals(number).name)
    await services.store_care().wait_until_usable(stop, services.terminal.note)
    if stop.is_set():
        return
    async with AsyncExitStack() as stack:
        house = services.load_house()(stack)
        for note in house.notes:
            services.terminal.note(note)
        listens = _print_json if arguments.json else _note
        await house.serve_api(
            stop,
            host=arguments.host,
            port=arguments.port,
            listens=lambda address: listens(services.terminal, address),
            tell=services.terminal.note,
        )


def _note(terminal: Terminal, address: str) -> None:
    terminal.note(f"The API listens at {address}/v1; Ctrl-C ends it.")


def _print_json(terminal: Terminal, address: str) -> None:
    told = {"url": address, "base_url": f"{address}/v1", "pid": os.getpid()}
    terminal.document(f"{msgspec.json.encode(told).decode()}\n", at_once=True)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to {_LAST_PORT}, not {text!r}")
    return int(text)
