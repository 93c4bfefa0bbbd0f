"""The memory of a profile: files, or a provider that another package brings."""

from functools import cache
from typing import TYPE_CHECKING, cast

from talaria.contracts.memory import MemoryAccount, MemoryKind, MemoryProvider
from talaria.core.errors import NotFound
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.memory.files import FileMemory
from talaria.tools.memory.notebook import Memories

if TYPE_CHECKING:  # a provider of another package is loaded by its name
    from collections.abc import Callable

FILES = "files"
_ENTRY_POINT_GROUP = "talaria.memory"


def open_memories(settings: Settings, profile: Profile) -> Memories:
    """Return the memory that the settings name; raises `NotFound` if its provider isn't installed."""
    memory = settings.memory
    limits: dict[MemoryKind, int] = {"memory": memory.notes_limit, "user": memory.person_limit}
    if memory.provider == FILES:
        return Memories(FileMemory(profile.memory_folder), limits)
    account = MemoryAccount(folder=profile.memory_folder, options=memory.options)
    return Memories(_load_provider(memory.provider)(account), limits)


@cache
def _load_provider(name: str) -> "Callable[[MemoryAccount], MemoryProvider]":
    from importlib.metadata import entry_points  # noqa: PLC0415 (loaded when another provider is named)

    points = entry_points(group=_ENTRY_POINT_GROUP)
    for point in points.select(name=name):
        return cast("Callable[[MemoryAccount], MemoryProvider]", point.load())
    known = ", ".join(sorted({FILES, *points.names}))
    raise NotFound(f"There is no memory provider `{name}`. Install its package, or set `memory.provider` to {known}.")
