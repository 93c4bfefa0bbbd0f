"""What the owner should know about who may speak in chats."""

from collections.abc import Iterator

from talaria.settings.faults import nearest
from talaria.settings.model import Settings

_KINDS = {"owner", "allowed"}


def open_doors(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each place where strangers may speak without having been let in."""
    if settings.access.everyone:
        yield "Everybody on every chat network may speak to the agent, at your cost: `access.everyone` is on."
        return
    for name, network in settings.platforms.items():
        if network.everyone:
            yield (f"Everybody on {name} may speak to the agent, at your cost: `platforms.{name}.everyone` is on.")


def nameless(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each name in the lists of access that is nobody's."""
    access = settings.access
    lists = {"owners": access.owners, "allowed": access.allowed, "blocked": access.blocked}
    lists |= {f"slash_access.{name}": who for name, who in access.slash_access.items()}
    for key, names in lists.items():
        kinds = _KINDS if key.startswith("slash_access.") else set()
        for name in names:
            if ":" not in name and name not in settings.people and name not in kinds:
                near = nearest(name, [*settings.people, *kinds], similarity=0.6)  # names of people are short
                help_ = f"the nearest is `{near}`" if near else "write PLATFORM:ID, or give the name an id in `people`"
                yield f"`access.{key}` names `{name}`, who is nobody; {help_}."
