"""Checks of the environment: Python, SQLite, optional packages, terminal and store."""

import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version

import apsw

from talaria import __version__
from talaria.cli.commands.doctor.report import Finding, fault, ok, warning
from talaria.cli.commands.update.versions import Versions
from talaria.cli.services import Services
from talaria.core.errors import StoreCorrupt, TalariaError
from talaria.core.installation import DISTRIBUTION, find_installation, install_command, pip_command
from talaria.settings.errors import SettingsInvalid
from talaria.settings.load import load
from talaria.settings.secrets import read_secrets
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS
from talaria.settings.sections.checks import mask_password

FIRST_PYTHON, LAST_PYTHON = (3, 11), (3, 13)


FIRST_SQLITE = (3, 51, 3)  # earlier versions could lose commits when two connections reset the write-ahead log at once
_NOT_REPORTED = ("all",)  # the sum of the others
_REQUIREMENT = re.compile(r"""([\w.-]++).*;\s*extra\s*==\s*['"]([\w-]+)['"]""")


def check_python(_services: Services) -> Iterator[Finding]:
    """Report whether Talaria is tested with this Python version."""
    running = ".".join(map(str, sys.version_info[:3]))
    if FIRST_PYTHON <= sys.version_info[:2] <= LAST_PYTHON:
        yield ok(f"Talaria {__version__} on Python {running}.")
    else:
        first, last = (".".join(map(str, one)) for one in (FIRST_PYTHON, LAST_PYTHON))
        yield fault(f"Python {running} isn't supported.", f"Install Talaria with Python {first} to {last}.")
    if Versions(find_installation()).record.pending is not None:
        yield fault("An update was interrupted.", "Run `talaria update`: it undoes the unfinished part.")


def check_sqlite(_services: Services) -> Iterator[Finding]:
    """Report the version of the bundled SQLite, which is not the system's."""
    running = apsw.sqlite_lib_version()
    if tuple(map(int, running.split("."))) >= FIRST_SQLITE:
        yield ok(f"SQLite {running}.")
    else:
        yield fault(
            f"SQLite {running} can lose data when two processes write at the same time.",
            f"`{shlex.join([*pip_command(), '--upgrade', 'apsw'])}` updates it.",
        )


def check_extras(services: Services) -> Iterator[Finding]:
    """Report installed optional packages, and missing ones that settings or tokens need."""
    extras = _list_extras()
    if not extras:
        yield warning(
            "Talaria isn't installed as a package, so its extras are unknown.", "Run `pip install -e .` in its folder."
        )
    missing = [extra for extra, packages in extras.items() if not all(packages.values())]
    for extra in extras:
        if extra not in missing:
            yield ok(f"{extra}: {', '.join(f'{name} {number}' for name, number in extras[extra].items())}.")
    needed = {extra: reason for extra, reason in _list_needed_extras(services) if extra in missing}
    for extra, reason in needed.items():
        report = fault if extra == "postgres" else warning
        yield report(
            f"{reason}, but {_list_missing(extras[extra])} isn't installed.", f"{_format_install(extra)} installs it."
        )
    others = [extra for extra in missing if extra not in needed]
    if others:
        yield ok(
            f"Not installed, and not needed now: {', '.join(others)}. Install one with {_format_install(others[0])}."
        )


def check_terminal(services: Services) -> Iterator[Finding]:
    """Report whether the terminal supports Unicode and colours."""
    encoding = sys.stdout.encoding or "ascii"
    where = "The terminal" if sys.stdout.isatty() else "The output (not a terminal)"
    colors = "with" if services.terminal.style("x", "bold") != "x" else "without"
    if encoding.lower().replace("-", "") == "utf8":
        yield ok(f"{where} supports UTF-8, {colors} colours.")
    else:
        yield warning(
            f"{where} uses {encoding}, so other characters are shown as escapes.",
            "Choose a UTF-8 locale, for example `export LC_ALL=C.UTF-8`.",
        )


def _list_extras() -> dict[str, dict[str, str]]:
    """Return the packages of each extra with their installed versions; empty if missing."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for requirement in _list_requirements():
        parsed = _REQUIREMENT.match(requirement)
        if parsed and parsed[2] not in _NOT_REPORTED:
            found[parsed[2]][parsed[1]] = _find_version(parsed[1])
    return found


def _list_requirements() -> list[str]:
    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _list_needed_extras(services: Services) -> Iterator[tuple[str, str]]:
    """Yield each required extra and what requires it."""
    settings = load(services.profile, services.environment).settings
    if settings.store.url:
        yield "postgres", "`store.url` names a PostgreSQL server"
    if any(server.enabled for server in settings.mcp.values()):
        yield "mcp", "An MCP server is configured"
    if "browser" in settings.tools.toolsets:
        yield "browser", "The toolset `browser` is on"
    secrets = read_secrets(services.profile, services.environment)
    for network in BUILT_IN_PLATFORMS.values():
        for name in network.secret_names if network.extra else ():
            if secrets.get(name):
                yield network.extra, f"{name} is set"


def _list_missing(packages: Mapping[str, str]) -> str:
    return ", ".join(name for name, number in packages.items() if not number)


def _format_install(extra: str) -> str:
    return f"`{install_command(extra)}`"


_RECOVER = "`talaria doctor --fix` sets the damaged file aside and recovers what can be read."


def check_store(services: Services) -> Iterator[Finding]:
    """Report damage of the store, or why it cannot be opened."""
    try:
        location = _describe_store(services)
        damage = services.store_maintenance().check()
        if not location and not damage:
            yield ok(f"{services.profile.database_file} doesn't exist yet. It is created with the first conversation.")
            return
    except SettingsInvalid:
        yield warning("The store wasn't checked, because the settings have faults.", "Fix the settings first.")
    except StoreCorrupt as error:
        yield _report_damage([str(error)], services)
    except TalariaError as error:
        yield fault(str(error) or error.public)
    else:
        yield _report_damage(damage, services) if damage else ok(f"{location} opens, is up to date and undamaged.")


def _describe_store(services: Services) -> str:
    """Return the location of the store; empty if its file does not exist yet."""
    url, file = services.settings().store.url, services.profile.database_file
    return mask_password(url) or (str(file) if file.exists() else "")


def _report_damage(damage: list[str], services: Services) -> Finding:
    return fault(" ".join(["The store is damaged.", *damage]), _RECOVER, services.store_maintenance().recover)
