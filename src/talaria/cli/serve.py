"""`talaria serve`: the agent over HTTP, for programs that speak OpenAI's API."""

import argparse
import asyncio
import os
import signal
from contextlib import AsyncExitStack

import msgspec

from talaria.cli.services import Services
from talaria.sessions.company import first_error
from talaria.sessions.ending import Stop
from talaria.settings.api_key_file import read_key_file

_LAST_PORT = 65_535
_EPILOG = """\
Without options it listens where the settings `api.host` and `api.port` say.
Every request needs a key, also on loopback. The first start creates one, shows
it once, and stores it in the file `api-key` of the profile; `talaria api-keys`
manages more of them.

Ctrl-C lets running requests finish for a while; a second one cuts them off.
With `--json` it prints one line with its address and the file of the key.
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
        before = read_key_file(services.profile)
        await house.serve_api(
            stop,
            host=arguments.host,
            port=arguments.port,
            listens=lambda address: _announce(arguments, services, address, before),
            tell=services.terminal.note,
        )


def _announce(arguments: argparse.Namespace, services: Services, address: str, before: str) -> None:
    """Print where it listens, and the first key if it was created now; ``before`` is what its file had at the start."""
    file, key = services.profile.api_key_file, read_key_file(services.profile)
    if arguments.json:
        values = {"url": address, "base_url": f"{address}/v1", "pid": os.getpid(), "api_key_file": key and str(file)}
        services.terminal.document(f"{msgspec.json.encode(values).decode()}\n", at_once=True)
        return
    if key != before:
        shown = f": {key}\nIt is shown only this once, and stored" if services.terminal.interactive else ","
        services.terminal.note(f"An API key was created{shown} in {file}.")
    services.terminal.note(f"The API listens at {address}/v1; Ctrl-C ends it.")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to {_LAST_PORT}, not {text!r}")
    return int(text)
