"""`talaria hooks`: list and test the owner's hooks."""

import argparse
from pathlib import Path
from typing import Any

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

_EPILOG = """\
A hook is a folder with a HOOK.yaml and a handler.py in the profile's `hooks`
folder. Restart running gateways and chats to load changes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    listing = actions.add_parser("list", help="list this profile's hooks and their problems")
    listing.add_argument("--json", action="store_true", help="print JSON")
    test = actions.add_parser("test", help="run a hook with a sample event and show the result")
    test.add_argument("name", metavar="NAME", help="the hook")
    test.add_argument(
        "event", metavar="EVENT", nargs="?", default="", help="the event (default: the first one it handles)"
    )


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    if arguments.action == "test":
        return _test(arguments.name, arguments.event, services)
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


def _test(name: str, event: str, services: Services) -> int:
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
    state = services.terminal.styled(hook.state, {"on": "green", "broken": "red"}.get(hook.state, "dim"))
    if hook.problem:
        return hook.name, state, "", "", ""
    handler = "built in" if hook.name == BOOT else hook.run or HANDLER
    return hook.name, state, " ".join(hook.events), handler, hook.description


def _as_data(hook: HookSummary) -> dict[str, Any]:
    place = "file" if hook.name == BOOT else "folder"
    data: dict[str, Any] = {"name": hook.name, "state": hook.state, place: str(hook.path)}
    if hook.problem:
        return {**data, "problem": hook.problem}
    data |= {"description": hook.description, "events": hook.events}
    return data if hook.name == BOOT else {**data, "run": hook.run, "timeout_seconds": hook.timeout_seconds}
