"""Find commands by what somebody typed, and sort them for reading."""

from collections.abc import Iterable, Mapping, Sequence

from talaria.commands.command import Command


def matching(name: str, commands: Sequence[Command]) -> list[Command]:
    """Return the one command of this name, else all those whose names begin so."""
    wanted = name.strip().removeprefix("/").lower()
    if not wanted:
        return []
    exact = [command for command in commands if wanted in command.names]
    return exact or [command for command in commands if any(known.startswith(wanted) for known in command.names)]


def by_category(commands: Iterable[Command]) -> Mapping[str, Mapping[str, str]]:
    """Return the help of each command by category and ``/name``."""
    found: dict[str, dict[str, str]] = {}
    for command in commands:
        found.setdefault(command.category, {})[f"/{command.name}"] = command.help
    return found
