"""Checks of what Talaria stands on: Python, SQLite, optional packages, the terminal."""

import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version

import apsw

from talaria import __version__
from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.core.extras import DISTRIBUTION, install_command, pip_command
from talaria.settings.load import load
from talaria.settings.secrets import KNOWN_SECRETS, read_secrets

FIRST_PYTHON, LAST_PYTHON = (3, 11), (3, 13)
FIRST_SQLITE = (3, 51, 3)  # before it, two connections could reset the write-ahead log at once and lose commits

_NOT_REPORTED = ("all", "browser")  # the sum of the others, and one that nothing uses yet
_REQUIREMENT = re.compile(r"""([\w.-]++).*;\s*extra\s*==\s*['"]([\w-]+)['"]""")


def look_at_python(_services: Services) -> Iterator[Finding]:
    """Report whether this Python is one that Talaria is tested with."""
    running = ".".join(map(str, sys.version_info[:3]))
    if FIRST_PYTHON <= sys.version_info[:2] <= LAST_PYTHON:
        yield ok(f"Talaria {__version__} on Python {running}.")
    else:
        first, last = (".".join(map(str, one)) for one in (FIRST_PYTHON, LAST_PYTHON))
        yield fault(f"Python {running} is not supported.", f"Install Talaria with Python {first} to {last}.")


def look_at_sqlite(_services: Services) -> Iterator[Finding]:
    """Report the version of SQLite that is in use, which is not the system's."""
    running = apsw.sqlite_lib_version()
    if tuple(map(int, running.split("."))) >= FIRST_SQLITE:
        yield ok(f"SQLite {running}.")
    else:
        yield fault(
            f"SQLite {running} can lose what two processes write at once.",
            f"`{shlex.join([*pip_command(), '--upgrade', 'apsw'])}` updates it.",
        )


def look_at_extras(services: Services) -> Iterator[Finding]:
    """Report which optional packages are there, and those that settings or tokens need and that are missing."""
    extras = _extras()
    if not extras:
        yield warning(
            "Talaria is not installed as a package, so its extras are unknown.", "Run `pip install -e .` in its folder."
        )
    missing = [extra for extra, packages in extras.items() if not all(packages.values())]
    for extra in extras:
        if extra not in missing:
            yield ok(f"{extra}: {', '.join(f'{name} {number}' for name, number in extras[extra].items())}.")
    needed = {extra: reason for extra, reason in _needed(services) if extra in missing}
    for extra, reason in needed.items():
        made = fault if extra == "postgres" else warning
        yield made(f"{reason}, but {_lacking(extras[extra])} is not installed.", f"{_install(extra)} adds it.")
    others = [extra for extra in missing if extra not in needed]
    if others:
        yield ok(f"Not installed, and not needed now: {', '.join(others)}. {_install(others[0])} adds one.")


def look_at_terminal(services: Services) -> Iterator[Finding]:
    """Report whether the output can show every script, and whether it is coloured."""
    encoding = sys.stdout.encoding or "ascii"
    where = "The terminal" if sys.stdout.isatty() else "The output, which is no terminal,"
    colors = "with" if services.terminal.styled("x", "bold") != "x" else "without"
    if encoding.lower().replace("-", "") == "utf8":
        yield ok(f"{where} takes UTF-8, {colors} colours.")
    else:
        yield warning(
            f"{where} takes {encoding}: other characters are shown as escapes.",
            "Choose a locale with UTF-8, such as `export LC_ALL=C.UTF-8`.",
        )


def _extras() -> dict[str, dict[str, str]]:
    """Return the packages of every extra with the versions that are installed; an empty one is missing."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for requirement in _requirements():
        parsed = _REQUIREMENT.match(requirement)
        if parsed and parsed[2] not in _NOT_REPORTED:
            found[parsed[2]][parsed[1]] = _installed(parsed[1])
    return found


def _requirements() -> list[str]:
    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _needed(services: Services) -> Iterator[tuple[str, str]]:
    """Yield each extra that something asks for, with what does."""
    settings = load(services.profile, services.environment).settings
    if settings.store.url:
        yield "postgres", "`store.url` names a PostgreSQL server"
    if any(server.enabled for server in settings.mcp.values()):
        yield "mcp", "An MCP server is in the settings"
    secrets = read_secrets(services.profile, services.environment)
    for known in KNOWN_SECRETS:
        if secrets.get(known.name):
            yield known.name.partition("_")[0].lower(), f"{known.name} is set"


def _lacking(packages: Mapping[str, str]) -> str:
    return ", ".join(name for name, number in packages.items() if not number)


def _install(extra: str) -> str:
    return f"`{install_command(extra)}`"
