"""Check for a newer version in the package index, at most once a day."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from talaria import __version__
from talaria.cli.services import Services
from talaria.core.errors import TalariaError
from talaria.core.installation import DISTRIBUTION, find_installer
from talaria.settings.atomic_files import make_folder, read_file, write_file

_INTERVAL = timedelta(days=1)
_FILE = "update-check.json"
_PART = re.compile(r"\d+|[a-z]+")
_BEFORE_RELEASE = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1}


class VersionCheck(Struct, frozen=True):
    """Result of the last look into the package index."""

    at: datetime
    newest: str = ""


def find_newest_version(environment: Mapping[str, str]) -> str:
    """Return the newest version in the package index; raises `Refused` if that can't be asked."""
    return find_installer(environment).find_newest(DISTRIBUTION)


def describe_new_version(services: Services) -> str:
    """Return a sentence about a newer version if ``update.check`` is on; empty if there is none. Never raises.

    The index is asked at most once a day. This blocks: in an event loop, call it in a thread.
    """
    try:
        if not services.settings().update.check:
            return ""
        newest = _read_or_ask(services)
    except (TalariaError, OSError, msgspec.DecodeError):
        return ""
    if not newest or compare_versions(newest, __version__) <= 0:
        return ""
    return f"Talaria {newest} is available; this is {__version__}. `talaria update` installs it."


def compare_versions(one: str, other: str) -> int:
    """Return a positive number if ``one`` is the newer version, a negative one if it is older, else 0."""
    left, right = _build_sort_key(one), _build_sort_key(other)
    return (left > right) - (left < right)


def _read_or_ask(services: Services) -> str:
    file, now = services.profiles.home / _FILE, datetime.now(UTC)
    content = read_file(file)
    last = msgspec.json.decode(content, type=VersionCheck) if content else None
    if last is not None and now - last.at < _INTERVAL:
        return last.newest
    make_folder(services.profiles.home)
    write_file(file, msgspec.json.encode(VersionCheck(now, last.newest if last else "")).decode())
    newest = find_newest_version(services.environment)
    write_file(file, msgspec.json.encode(VersionCheck(now, newest)).decode())
    return newest


def _build_sort_key(version: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the release numbers without trailing zeros, then the stage before the release: 0 for the release."""
    parts = _PART.findall(version.lower().partition("+")[0])
    numbers: list[int] = []
    for part in parts:
        if not part.isdecimal():
            break
        numbers.append(int(part))
    rest = parts[len(numbers) :]
    while numbers and not numbers[-1]:
        numbers.pop()
    stage = [_BEFORE_RELEASE.get(part, 1) if not part.isdecimal() else int(part) for part in rest]
    return tuple(numbers), tuple(stage or [0])
