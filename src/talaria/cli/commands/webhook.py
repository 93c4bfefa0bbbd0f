"""`talaria webhook`: manage webhook routes and preview their events."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.core.errors import NotFound, Refused

_EPILOG = """\
A route is a file NAME.toml. `list` shows where these files are and their
problems; `test` shows what the agent would receive, without running it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    listing = actions.add_parser("list", help="list the routes and their problems")
    trial = actions.add_parser("test", help="show the message a sample event would produce")
    trial.add_argument("name", metavar="NAME", help="the route")
    body = trial.add_argument(
        "--body", metavar="FILE", required=True, help="a file with the event; - reads standard input"
    )
    add_completion(body, "files")
    trial.add_argument(
        "--header", metavar="HEADER", action="append", default=[], help="a header, for example 'X-GitHub-Event: push'"
    )
    for action in (listing, trial):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _list(arguments, services) if arguments.action == "list" else _test(arguments, services)


def _list(arguments: argparse.Namespace, services: Services) -> int:
    webhook_info = services.networks().webhooks()
    routes = webhook_info.routes()
    if arguments.json:
        services.terminal.json(routes)
        return 0
    rows = [(one.name, one.scheme, one.url, one.deliver_to, "ready" * (not one.problem)) for one in routes]
    services.terminal.table(("ROUTE", "SCHEME", "ADDRESS", "REPLIES TO", "STATE"), rows)
    for one in routes:
        if one.problem:
            services.terminal.note(f"{one.name}: {one.problem}")
    if not routes and services.terminal.interactive:
        services.terminal.note(
            f"There are no routes. Each one is a file, for example {Path(webhook_info.folder, 'github.toml')}."
        )
    if routes and "webhook" not in services.networks().names():
        services.terminal.note(
            "Webhooks are off. Turn them on with `talaria config set platforms.webhook.enabled true`."
        )
    return 0


def _test(arguments: argparse.Namespace, services: Services) -> int:
    body, headers = _read_body(arguments.body), _parse_headers(arguments.header)
    trial = services.networks().webhooks().try_out(arguments.name, body, headers)
    if arguments.json:
        services.terminal.json(trial)
        return 0
    if trial.missing:
        services.terminal.note(f"The event is missing {', '.join(trial.missing)}.")
    if trial.why:
        services.terminal.note(f"This event wouldn't start a turn: {trial.why}.")
        return 0
    services.terminal.line(trial.text)
    where = f"in the conversation `{trial.conversation}`" if trial.conversation else "in the route's own conversation"
    services.terminal.note(f"The agent would receive this {where}, once per event id ({trial.id}).")
    return 0


def _read_body(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise NotFound(f"Can't read {source}: {error.strerror}.") from error


def _parse_headers(lines: Sequence[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise Refused(f"`{line}` isn't a header. Write it like 'X-GitHub-Event: push'.")
        headers[name.strip().lower()] = value.strip()
    return headers
