"""`talaria hooks`: list and test the owner's hooks."""

import argparse
from pathlib import Path
from typing import Any

from talaria.cli.services import Services
from talaria.core.errors import NotFound, Refused
from talaria.hooks.discovery import BOOT, BOOT_FILE, FOLDER, HANDLER, Hook, UnusableHook, find_hooks

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
    found = find_hooks(services.profile.folder / FOLDER)
    boot = services.profile.folder / BOOT_FILE
    if arguments.json:
        services.terminal.json([_boot_data(boot), *map(_as_data, found)])
        return 0
    services.terminal.table(
        ("HOOK", "STATE", "EVENTS", "HANDLER", "DOES"),
        [_boot_row(boot, services), *(_format_row(one, services) for one in found)],
    )
    for one in found:
        if isinstance(one, UnusableHook):
            services.terminal.note(one.problem)
    return 0


def _test(name: str, event: str, services: Services) -> int:
    if name == BOOT:
        raise Refused(
            f"`{BOOT}` is built in: when a gateway starts, the agent does what the profile's {BOOT_FILE} asks for."
        )
    from talaria.hooks.dry_run import try_hook  # noqa: PLC0415 (loaded for this action: runs the handler)

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


def _format_state(found: Hook | UnusableHook) -> str:
    if isinstance(found, UnusableHook):
        return "broken"
    return "on" if found.manifest.enabled else "off"


def _format_row(found: Hook | UnusableHook, services: Services) -> tuple[object, ...]:
    state = _style_state(_format_state(found), services)
    if isinstance(found, UnusableHook):
        return found.folder.name, state, "", "", ""
    manifest = found.manifest
    return manifest.name, state, " ".join(manifest.events), manifest.run or HANDLER, manifest.description


def _as_data(found: Hook | UnusableHook) -> dict[str, Any]:
    data: dict[str, Any] = {"name": found.folder.name, "state": _format_state(found), "folder": str(found.folder)}
    if isinstance(found, UnusableHook):
        return {**data, "problem": found.problem}
    manifest = found.manifest
    return {
        **data,
        "name": manifest.name,
        "description": manifest.description,
        "events": manifest.events,
        "run": manifest.run,
        "timeout_seconds": manifest.timeout_seconds,
    }


def _boot_data(boot: Path) -> dict[str, Any]:
    state = "on" if boot.is_file() else "off"
    return {
        "name": BOOT,
        "state": state,
        "file": str(boot),
        "description": _describe_boot(boot),
        "events": ["gateway:start"],
    }


def _boot_row(boot: Path, services: Services) -> tuple[object, ...]:
    data = _boot_data(boot)
    return BOOT, _style_state(data["state"], services), *data["events"], "built in", data["description"]


def _describe_boot(boot: Path) -> str:
    return f"Does what {BOOT_FILE} asks for" + ("" if boot.is_file() else ", once there is one")


def _style_state(state: str, services: Services) -> str:
    return services.terminal.styled(state, {"on": "green", "broken": "red"}.get(state, "dim"))
