"""`talaria serve`: serve the agent over an OpenAI-compatible HTTP API."""

import argparse
import asyncio
import os
import signal
from collections.abc import Callable

import msgspec

from talaria.access.api_keys import read_key_file
from talaria.cli.server_process import open_server_application
from talaria.cli.services import Services
from talaria.core.aio import StopSignal, first_error

_LAST_PORT = 65_535
_EPILOG = """\
Without options, it listens on `api.host` and `api.port` from the settings.
Every request needs a key, even on loopback. The first start creates one, shows
it once and stores it in the profile's file `api-key`; `talaria api-keys`
manages more keys.

Ctrl-C gives running requests time to finish; pressed again, it stops them.
With `--json`, it prints one line with its address and the key's file.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = _EPILOG
    parser.add_argument("--host", metavar="ADDRESS", default="", help="address to listen on")
    parser.add_argument("--port", metavar="PORT", type=_port, help="port to listen on; 0 means any free port")
    parser.add_argument("--json", action="store_true", help="print the address as one line of JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Serve until Ctrl-C and return the exit code."""
    previous_key = read_key_file(services.profile)
    try:
        asyncio.run(
            serve_until_stopped(
                services,
                host=arguments.host,
                port=arguments.port,
                on_listening=lambda address: _announce(arguments, services, address, previous_key),
            )
        )
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return 0


async def serve_until_stopped(
    services: Services, *, on_listening: Callable[[str], None], host: str = "", port: int | None = None
) -> None:
    """Serve the API and the web app until a signal; an empty ``host`` or ``port`` is taken from the settings."""
    stop, signals = StopSignal(), (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    async with open_server_application(services, stop, {one: one.name for one in signals}) as (application, manager):
        if application is None:
            return

        def report_listening(address: str) -> None:
            on_listening(address)
            manager.report_ready(f"The API is listening on {address}.")

        await application.serve_api(
            stop, host=host, port=port, on_listening=report_listening, tell=services.terminal.note
        )


def _announce(arguments: argparse.Namespace, services: Services, address: str, previous_key: str) -> None:
    """Print the address, and the first API key if it was just created.

    ``previous_key`` is the content of the key file at the start.
    """
    file, key = services.profile.api_key_file, read_key_file(services.profile)
    if arguments.json:
        values = {"url": address, "base_url": f"{address}/v1", "pid": os.getpid(), "api_key_file": key and str(file)}
        services.terminal.document(f"{msgspec.json.encode(values).decode()}\n", flush=True)
        return
    if key != previous_key:
        shown = f": {key}\nIt is shown only once, and stored" if services.terminal.interactive else ","
        services.terminal.note(f"An API key was created{shown} in {file}.")
    services.terminal.note(f"The API is listening on {address}/v1. Press Ctrl-C to stop.")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to {_LAST_PORT}, not {text!r}")
    return int(text)
