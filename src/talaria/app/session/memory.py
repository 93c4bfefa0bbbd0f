"""The memory of a profile: files, or a provider that another package brings."""

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from talaria.contracts.memory import MemoryAccount, MemoryKind, MemoryProvider
from talaria.core.errors import NotFound
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.memory.notebook import FileMemory, Memories

if TYPE_CHECKING:  # a provider of another package is loaded by its name, consolidation on first use
    from collections.abc import Callable, Sequence

    from talaria.app.models import Models
    from talaria.contracts.store import Store, Transaction
    from talaria.contracts.stores.sessions import Viewer
    from talaria.contracts.stores.turns import Cap
    from talaria.runtime.open_session import OpenSession
    from talaria.tools.memory.consolidation import Consolidator

FILES = "files"
_ENTRY_POINT_GROUP = "talaria.memory"
_OPEN_MEMORIES = 16


def open_memories(settings: Settings, profile: Profile) -> Memories:
    """Return the memory that the settings name; raises `NotFound` if its provider isn't installed."""
    memory = settings.memory
    options = tuple(memory.options.items())
    folder = space_folder(profile, memory.space) if memory.space else profile.memory_folder
    return open_memory(folder, memory.provider, memory.notes_limit, memory.person_limit, options)


def space_folder(profile: Profile, name: str) -> Path:
    """Return the folder of a memory apart from the usual one."""
    return profile.folder / "personas" / name / "memory"


@lru_cache(maxsize=_OPEN_MEMORIES)
def open_memory(
    folder: Path, provider: str, notes_limit: int, person_limit: int, options: tuple[tuple[str, str], ...]
) -> Memories:
    """Return one memory, the same object each time, as every session begins with this."""
    limits: dict[MemoryKind, int] = {"memory": notes_limit, "user": person_limit}
    if provider == FILES:
        return Memories(FileMemory(folder), limits)
    return Memories(_load_provider(provider)(MemoryAccount(folder=folder, options=dict(options))), limits)


def open_consolidator(
    settings: Settings,
    profile: Profile,
    store: "Store",
    models: "Models",
    viewer: "Viewer",
    active: "OpenSession | None" = None,
) -> "Consolidator":
    """Return the consolidation of a viewer's memory by the auxiliary model.

    Its cost counts towards the caps of the open session, or without one towards the monthly ones of the owner.
    """
    from talaria.tools.memory.consolidation import Consolidator  # noqa: PLC0415 (loaded when memory is consolidated)

    async def ask(instructions: str, text: str, max_tokens: int) -> str:
        from talaria.agent.auxiliary import Auxiliary  # noqa: PLC0415 (loaded when memory is consolidated)
        from talaria.agent.model_calls import ModelCalls  # noqa: PLC0415 (loaded when memory is consolidated)
        from talaria.runtime.turn_environment import StoredBudget  # noqa: PLC0415 (loaded when memory is consolidated)

        if active is None:
            chosen = await models.resolve_default_model(settings.model)
        else:
            chosen = await models.choose(active.provider, active.model, active.why)
        calls = ModelCalls(models.build_auxiliary_chain(chosen), on_result=models.health.record_outcome)
        budget = StoredBudget(store, lambda tx: _list_caps(settings, tx, active))
        answer, _ = await Auxiliary(calls, budget).answer(instructions, text, max_tokens=max_tokens)
        return answer

    return Consolidator(open_memories(settings, profile), store, viewer, ask)


def _list_caps(settings: Settings, tx: "Transaction", active: "OpenSession | None") -> "Sequence[Cap]":
    from talaria.runtime.turn_environment import build_caps, build_monthly_caps  # noqa: PLC0415 (as above)

    session = tx.sessions.get(active.conversation.session_id) if active else None
    if session is not None:
        return build_caps(settings.budget, session)
    return [cap for cap in build_monthly_caps(settings.budget, "") if cap.limit]


@cache
def _load_provider(name: str) -> "Callable[[MemoryAccount], MemoryProvider]":
    from importlib.metadata import entry_points  # noqa: PLC0415 (loaded when another provider is named)

    points = entry_points(group=_ENTRY_POINT_GROUP)
    for point in points.select(name=name):
        return cast("Callable[[MemoryAccount], MemoryProvider]", point.load())
    known = ", ".join(sorted({FILES, *points.names}))
    raise NotFound(f"There is no memory provider `{name}`. Install its package, or set `memory.provider` to {known}.")
