"""`talaria serve` and `talaria web`: serve the HTTP API, open the web app, and manage signed-in browsers."""

import argparse
import asyncio
import io
import os
import signal
import socket
import webbrowser
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from talaria.access.api_keys import read_key_file
from talaria.cli.server_process import open_server_application
from talaria.cli.services import Services
from talaria.core.aio import StopSignal, first_error
from talaria.core.errors import Refused
from talaria.core.formatting import find_zone, format_time

_LAST_PORT = 65_535
_SERVE_EPILOG = """\
Without options, it listens on `api.host` and `api.port` from the settings.
Every request needs a key, even on loopback. The first start creates one, shows
it once and stores it in the profile's file `api-key`; `talaria api-keys`
manages more keys.

Ctrl-C gives running requests time to finish; pressed again, it stops them.
With `--json`, it prints one line with its address and the key's file.
"""
_WEB_EPILOG = """\
Without an action, it opens the web app in your browser, signed in with a code
that works once and for two minutes. If no server is running, it runs one until
Ctrl-C; `talaria serve` and a gateway with `api.enabled` serve the app too.

`pair` shows a code and a QR code for a phone or another computer. To reach the
server from there, set `api.host`, for example to 0.0.0.0.
"""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServeCommand:
    """`talaria serve`: serve the agent over an OpenAI-compatible HTTP API."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.epilog = _SERVE_EPILOG
        parser.add_argument("--host", metavar="ADDRESS", default="", help="address to listen on")
        parser.add_argument("--port", metavar="PORT", type=_parse_port, help="port to listen on; 0 means any free port")
        parser.add_argument("--json", action="store_true", help="print the address as one line of JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Serve until Ctrl-C and return the exit code."""
        previous_key = read_key_file(services.profile)
        try:
            asyncio.run(
                serve_until_stopped(
                    services,
                    host=arguments.host,
                    port=arguments.port,
                    on_listening=lambda address: _announce_api(arguments, services, address, previous_key),
                )
            )
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        return 0


class WebCommand:
    """`talaria web`: open the web app, pair other devices, and list and revoke signed-in browsers."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        parser.epilog = _WEB_EPILOG
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        parser.set_defaults(action="open")
        opening = actions.add_parser("open", help="open the web app in a browser (default)")
        opening.add_argument("--no-open", action="store_true", help="print the address instead of opening a browser")
        pair = actions.add_parser("pair", help="show a code and a QR code for another device")
        pair.add_argument(
            "--person", metavar="NAME", default="", help="whose device it is: a name from `people` (default: you)"
        )
        pair.add_argument("--url", metavar="URL", default="", help="address under which the device reaches the server")
        browsers = actions.add_parser("browsers", help="list signed-in browsers")
        revoke = actions.add_parser("revoke", help="sign a browser out")
        revoke.add_argument("browser", metavar="ID", help="id of the browser, as `browsers` shows it")
        for action in (browsers, revoke):
            action.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        _ACTIONS[arguments.action](arguments, services)
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


def _announce_api(arguments: argparse.Namespace, services: Services, address: str, previous_key: str) -> None:
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


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to {_LAST_PORT}, not {text!r}")
    return int(text)


def _open_app(arguments: argparse.Namespace, services: Services) -> None:
    if not services.settings().api.web:
        raise Refused("The web app is switched off. Run `talaria config set api.web true`.")
    if address := _find_server(services):
        _show_app(arguments, services, address)
        return
    try:
        asyncio.run(
            serve_until_stopped(services, on_listening=lambda found: _show_app(arguments, services, found, serves=True))
        )
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


def _show_app(arguments: argparse.Namespace, services: Services, address: str, *, serves: bool = False) -> None:
    """Open the app signed in, or print the address that does so."""
    link = f"{_make_reachable(address)}/#code={_create_code(services)}"
    is_opened = not arguments.no_open and services.terminal.interactive and webbrowser.open(link)
    if is_opened:
        services.terminal.note(f"The web app is open in your browser: {_make_reachable(address)}")
    else:
        services.terminal.note("Open this address within two minutes. It works once:")
        services.terminal.document(f"{link}\n", flush=True)
    if serves:
        services.terminal.note("Press Ctrl-C to stop the server.")


def _pair_device(arguments: argparse.Namespace, services: Services) -> None:
    import segno  # noqa: PLC0415 (loaded when a QR code is drawn)

    from talaria.access.browsers import (  # noqa: PLC0415 (loaded for an action: needs hashlib)
        PAIRING_CODE_LIFE,
        create_code,
        resolve_person,
    )

    person = resolve_person(services.settings(), arguments.person)
    address = arguments.url.rstrip("/") or _find_server(services)
    if not address:
        raise Refused("No server is running. Start one with `talaria web` or `talaria serve`, then pair.")
    with services.open_database() as database:
        code = database.write(lambda tx: create_code(tx, person=person, life=PAIRING_CODE_LIFE))
    reached = _make_reachable(address, outside=True)
    drawn = io.StringIO()
    segno.make(f"{reached}/#code={code}", error="m", micro=False).terminal(drawn, compact=True, border=2)
    terminal = services.terminal
    if terminal.interactive:
        terminal.document(drawn.getvalue())
    terminal.document(f"{reached}/#code={code}\n")
    terminal.note(f"Scan it, or open {reached} and type the code {code}. It works once, for ten minutes.")
    if urlsplit(address).hostname in _LOOPBACK:
        terminal.note("This server listens only on this machine. Set `api.host` to 0.0.0.0 to reach it from others.")
    elif urlsplit(reached).scheme == "http":
        terminal.note("This connection isn't encrypted. Use it only in a network that you trust.")


def _list_browsers(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.browsers import read_browsers  # noqa: PLC0415 (loaded for an action: needs hashlib)

    with services.open_database() as database:
        found = sorted(database.read(read_browsers).values(), key=lambda one: one.seen_at, reverse=True)
    if arguments.json:
        services.terminal.json([
            {"id": one.id, "label": one.label, "person": one.person, "created_at": one.created_at,
             "seen_at": one.seen_at} for one in found
        ])  # fmt: skip
        return
    zone = find_zone(services.settings().cli.time_zone)
    rows = [(one.id, one.label, one.person or "you", format_time(one.seen_at, zone)) for one in found]
    if rows:
        services.terminal.table(("ID", "BROWSER", "PERSON", "LAST USED"), rows)
    elif services.terminal.interactive:
        services.terminal.note("No browser is signed in. `talaria web` opens the web app.")


def _revoke_browser(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.browsers import revoke_browser  # noqa: PLC0415 (loaded for an action: needs hashlib)

    with services.open_database() as database:
        database.write(lambda tx: revoke_browser(tx, arguments.browser))
    if arguments.json:
        services.terminal.json({"id": arguments.browser, "revoked": True})
    else:
        services.terminal.line(f"Signed out the browser `{arguments.browser}`.")


def _find_server(services: Services) -> str:
    from talaria.runtime.workers import find_server  # noqa: PLC0415 (loaded for an action)

    with services.open_database() as database:
        return database.write(find_server)


def _create_code(services: Services) -> str:
    from talaria.access.browsers import create_code  # noqa: PLC0415 (loaded for an action: needs hashlib)

    with services.open_database() as database:
        return database.write(create_code)


def _make_reachable(address: str, *, outside: bool = False) -> str:
    """Return an address that a browser can open: a server that listens everywhere is on this machine, too."""
    parts = urlsplit(address)
    if parts.hostname not in ("0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
        return address
    host = _find_own_address() if outside else "127.0.0.1"
    return f"{parts.scheme}://{host}:{parts.port}"


def _find_own_address() -> str:
    """Return the address of this machine in its network, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "open": _open_app,
    "pair": _pair_device,
    "browsers": _list_browsers,
    "revoke": _revoke_browser,
}
