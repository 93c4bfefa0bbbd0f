"""Warnings about who may talk to the agent in chats."""

from collections.abc import Iterator

from talaria.settings.errors import nearest
from talaria.settings.model import Settings

_KINDS = {"owner", "allowed"}


def list_open_access(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each chat network that strangers may use without pairing."""
    if settings.access.everyone:
        yield "Anyone on any chat network can talk to the agent at your expense: `access.everyone` is on."
        return
    for name, network in settings.platforms.items():
        if network.everyone:
            yield (f"Anyone on {name} can talk to the agent at your expense: `platforms.{name}.everyone` is on.")


def list_unknown_names(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each unknown name in the access rules."""
    access = settings.access
    lists = {"owners": access.owners, "allowed": access.allowed, "blocked": access.blocked}
    lists |= {f"slash_access.{name}": who for name, who in access.slash_access.items()}
    for key, names in lists.items():
        kinds = _KINDS if key.startswith("slash_access.") else set()
        for name in names:
            if ":" not in name and name not in settings.people and name not in kinds:
                near = nearest(name, [*settings.people, *kinds], similarity=0.6)  # names of people are short
                advice = f"the nearest is `{near}`" if near else "use PLATFORM:ID, or add the name to `people`"
                yield f"`access.{key}` names an unknown person, `{name}`; {advice}."
