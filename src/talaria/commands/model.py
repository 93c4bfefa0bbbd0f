"""`/model`: which model answers here, and another one for this conversation."""

from collections.abc import Sequence

from talaria.commands.choosing import prefer, preferences
from talaria.commands.command import Command, Errand
from talaria.commands.model_words import about
from talaria.contracts.stores.sessions import SessionChanges

DEFAULT = "default"


async def run(errand: Errand) -> None:
    """Say which model answers and why, or choose another."""
    if not errand.words:
        chat = errand.seat.chat
        errand.place.show(
            f"`{chat.provider}:{chat.model}` answers here. {chat.why} {about(chat.info)}\n\n"
            "`/model NAME` chooses another one for this conversation."
        )
    elif errand.words == DEFAULT:
        await prefer(errand, model="")
        await _told(errand, ", as the settings say")
    else:
        await choose(errand, errand.words)


async def choose(errand: Errand, words: str) -> None:
    """Let the model that these words mean answer in this conversation."""
    chosen = await errand.house.models.find(words)
    await prefer(errand, model=f"{chosen.provider}:{chosen.model}")
    await _told(errand, "; `/model default` goes back to the settings", chosen.limits)


async def _told(errand: Errand, more: str, limits: str = "") -> None:
    chat, session_id = errand.seat.chat, errand.seat.session_id
    await errand.seat.store.write(lambda tx: tx.sessions.update(session_id, SessionChanges(model=chat.model)))
    sentences = (f"From now on `{chat.provider}:{chat.model}` answers here{more}.", about(chat.info), limits)
    errand.place.show(" ".join(filter(None, sentences)))


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return every model that can be used."""
    listing = await errand.house.models.recent_listing()
    known = [(f"{one.provider}:{one.model}", f"{one.info.context_limit:,} tokens") for one in listing.models]
    back = [(DEFAULT, "as the settings say")] if (await preferences(errand)).model else []
    return [*back, *known]


COMMAND = Command(
    name="model",
    category="Model",
    help="Show which model answers here, or choose another for this conversation.",
    hint="[name|default]",
    during_turn="refused",
    who="owner",
    run=run,
    offers=offers,
)
