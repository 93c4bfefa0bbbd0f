"""`talaria hooks` and `talaria webhook`: list and test event hooks and webhook routes."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.core.errors import NotFound, Refused
from talaria.hooks.discovery import (
    BOOT,
    BOOT_FILE,
    FOLDER,
    HANDLER,
    Hook,
    HookSummary,
    UnusableHook,
    find_hooks,
    summarize_hooks,
)

_HOOKS_EPILOG = """\
A hook is a folder with a HOOK.yaml and a handler.py in the profile's `hooks`
folder. Restart running gateways and chats to load changes.
"""
_WEBHOOK_EPILOG = """\
A route is a file NAME.toml. `list` shows where these files are and their
problems; `test` shows what the agent would receive, without running it.
"""


class HooksCommand:
    """`talaria hooks`: list and test the owner's hooks."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        parser.epilog = _HOOKS_EPILOG
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        parser.set_defaults(action="list")
        listing = actions.add_parser("list", help="list this profile's hooks and their problems")
        listing.add_argument("--json", action="store_true", help="print JSON")
        test = actions.add_parser("test", help="run a hook with a sample event and show the result")
        test.add_argument("name", metavar="NAME", help="the hook")
        test.add_argument(
            "event", metavar="EVENT", nargs="?", default="", help="the event (default: the first one it handles)"
        )

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        if arguments.action == "test":
            return _test_hook(arguments.name, arguments.event, services)
        found = summarize_hooks(services.profile.folder)
        if arguments.json:
            services.terminal.json([_as_data(one) for one in found])
            return 0
        services.terminal.table(
            ("HOOK", "STATE", "EVENTS", "HANDLER", "DOES"), [_format_row(one, services) for one in found]
        )
        for one in found:
            if one.problem:
                services.terminal.note(one.problem)
        return 0


class WebhookCommand:
    """`talaria webhook`: manage webhook routes and preview their events."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        parser.epilog = _WEBHOOK_EPILOG
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
            "--header",
            metavar="HEADER",
            action="append",
            default=[],
            help="a header, for example 'X-GitHub-Event: push'",
        )
        for action in (listing, trial):
            action.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        return _list_routes(arguments, services) if arguments.action == "list" else _test_route(arguments, services)


def _test_hook(name: str, event: str, services: Services) -> int:
    if name == BOOT:
        raise Refused(
            f"`{BOOT}` is built in: when a gateway starts, the agent does what the profile's {BOOT_FILE} asks for."
        )
    from talaria.hooks.editor import try_hook  # noqa: PLC0415 (loaded for this action: runs the handler)

    report = try_hook(_find_hook(name, services.profile.folder / FOLDER), event, services.environment)
    if report.output:
        services.terminal.line(report.output)
    if report.trouble:
        raise Refused(f"The hook {name} failed on {report.event}: {report.trouble}")
    services.terminal.note(f"The hook {name} handled {report.event} in {report.seconds:.2f} s.")
    return 0


def _find_hook(name: str, folder: Path) -> Hook:
    found = find_hooks(folder)
    for one in found:
        if isinstance(one, UnusableHook) and one.folder.name == name:
            raise Refused(one.problem)
        if isinstance(one, Hook) and one.manifest.name == name:
            return one
    known = ", ".join(one.manifest.name for one in found if isinstance(one, Hook))
    raise NotFound(f"There is no hook `{name}` in {folder}. Available: {known or 'none'}.")


def _format_row(hook: HookSummary, services: Services) -> tuple[object, ...]:
    state = services.terminal.style(hook.state, {"on": "green", "broken": "red"}.get(hook.state, "dim"))
    if hook.problem:
        return hook.name, state, "", "", ""
    handler = "built in" if hook.name == BOOT else hook.run or HANDLER
    return hook.name, state, " ".join(hook.events), handler, hook.description


def _as_data(hook: HookSummary) -> dict[str, Any]:
    kind = "file" if hook.name == BOOT else "folder"
    data: dict[str, Any] = {"name": hook.name, "state": hook.state, kind: str(hook.path)}
    if hook.problem:
        return {**data, "problem": hook.problem}
    data |= {"description": hook.description, "events": hook.events}
    return data if hook.name == BOOT else {**data, "run": hook.run, "timeout_seconds": hook.timeout_seconds}


def _list_routes(arguments: argparse.Namespace, services: Services) -> int:
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


def _test_route(arguments: argparse.Namespace, services: Services) -> int:
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
