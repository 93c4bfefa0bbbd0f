"""Slash commands `/model`, `/personality`, `/provider` and `/reasoning`: model options of the session."""

from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from talaria.commands.command import Command, CommandContext
from talaria.contracts.provider import ModelInfo
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.errors import NotFound, Refused, TalariaError
from talaria.core.formatting import pluralize
from talaria.core.ids import SessionId
from talaria.sessions.preferences import Preferences, read_preferences, write_preferences

_FEWEST_TO_PICK_FROM = 2
DEFAULT_MODEL = "default"
NO_PERSONALITY = "none"
EFFORTS = {
    "none": "no reasoning",
    "minimal": "as little reasoning as possible",
    "low": "some reasoning",
    "medium": "the usual amount of reasoning",
    "high": "a lot of reasoning; takes time and tokens",
    "default": "as in the settings",
}
VISIBILITY_HELP = {"show": "show the model's reasoning", "hide": "hide it"}


async def get_preferences(context: CommandContext) -> Preferences:
    """Return the preferences of the active session."""
    session_id = context.active_session.session_id
    return await context.active_session.store.read(lambda tx: read_preferences(tx, session_id))


async def set_preferences(context: CommandContext, **changes: str) -> None:
    """Store preferences and reopen the session with them.

    If it cannot be reopened, the old preferences are restored and the error is raised. Raises `Refused` during a turn.
    """
    if context.active_session.busy:
        raise Refused("A turn is running. Stop it with `/stop` first, then choose.")
    active_session, session_id, request = (
        context.active_session,
        context.active_session.session_id,
        context.active_session.request,
    )
    before = await get_preferences(context)
    if "model" in changes:  # overrides the model given at startup
        active_session.request = structs.replace(request, model="")
    await _store(context, session_id, structs.replace(before, **changes))
    try:
        await active_session.renew()
    except TalariaError:
        active_session.request = request
        await _store(context, session_id, before)
        raise


async def _store(context: CommandContext, session_id: SessionId, chosen: Preferences) -> None:
    await context.active_session.store.write(lambda tx: write_preferences(tx, session_id, chosen))


def describe_model(info: ModelInfo) -> str:
    """Return a sentence about the context limit and price of a model."""
    if not info.known and not info.has_price:
        return f"Its price is unknown; a context of {info.context_limit:,} tokens is assumed."
    price = "nothing" if info.free else info.describe_price()
    unit = " per million tokens" if info.has_price and not info.free else ""
    return f"Context: {info.context_limit:,} tokens. Price: {price}{unit}."


async def run_model(context: CommandContext) -> None:
    """Show the current model and why it was chosen, or choose another; in a terminal, from a list."""
    if not context.arguments:
        chat = context.active_session.chat
        context.surface.show(
            f"This conversation uses `{chat.provider}:{chat.model}`. {chat.why} "
            f"{describe_model(chat.info)}\n\n`/model NAME` chooses another model for it."
        )
        if context.screen is not None and not context.active_session.busy:
            await _pick_model(context)
    elif context.arguments == DEFAULT_MODEL:
        await set_preferences(context, model="")
        await _report_model(context, ", as in the settings")
    else:
        await choose_model(context, context.arguments)


async def _pick_model(context: CommandContext) -> None:
    """Let the user choose from all usable models, with size and price."""
    listing = await context.application.models.get_cached_listing()
    if len(listing.models) < _FEWEST_TO_PICK_FROM:
        return
    names = [f"{one.provider}:{one.model}" for one in listing.models]
    choices = [f"{name}  ({_describe_briefly(one.info)})" for name, one in zip(names, listing.models, strict=True)]
    index = await context.surface.choose("Which model?", choices)
    if index is not None:
        await choose_model(context, names[index])


def _describe_briefly(info: ModelInfo) -> str:
    return f"{info.context_limit:,} tokens, {info.describe_price()}"


async def choose_model(context: CommandContext, name: str) -> None:
    """Use the named model in this session."""
    chosen = await context.application.models.find(name)
    await set_preferences(context, model=f"{chosen.provider}:{chosen.model}")
    await _report_model(context, "; `/model default` returns to the one in the settings", chosen.limits)


async def _report_model(context: CommandContext, note: str, limits: str = "") -> None:
    chat, session_id = context.active_session.chat, context.active_session.session_id
    await context.active_session.store.write(
        lambda tx: tx.sessions.update(session_id, SessionChanges(model=chat.model))
    )
    sentences = (f"This conversation now uses `{chat.provider}:{chat.model}`{note}.", describe_model(chat.info), limits)
    context.surface.show(" ".join(filter(None, sentences)))


async def offer_model_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every usable model as a completion."""
    listing = await context.application.models.get_cached_listing()
    known = [(f"{one.provider}:{one.model}", _describe_briefly(one.info)) for one in listing.models]
    back = [(DEFAULT_MODEL, "as in the settings")] if (await get_preferences(context)).model else []
    return [*back, *context.application.settings_admin.current.model.aliases.items(), *known]


MODEL = Command(
    name="model",
    category="Model",
    help="Show this conversation's model, or choose another.",
    hint="[name|default]",
    during_turn="refused",
    who="owner",
    run=run_model,
    offers=offer_model_choices,
)


async def run_personality(context: CommandContext) -> None:
    """List the personalities, or choose one."""
    known = context.application.knowledge.personalities()
    if not context.arguments:
        now = (await get_preferences(context)).personality
        lines = [f"- `{name}`{' (chosen here)' if name == now else ''}: {line}" for name, line in known.items()]
        end = "`/personality NAME` chooses one for this conversation, `/personality none` removes it."
        context.surface.show("\n".join([*lines, "", end]))
        return
    if context.arguments not in (*known, NO_PERSONALITY):
        raise NotFound(f"There is no personality `{context.arguments}`. Available: {', '.join(known)}.")
    chosen = "" if context.arguments == NO_PERSONALITY else context.arguments
    await set_preferences(context, personality=chosen)
    now = f"as `{chosen}`" if chosen else "without a personality"
    context.surface.show(f"From the next message, the agent answers {now} in this conversation.")


async def offer_personality_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every personality as a completion."""
    return [*context.application.knowledge.personalities().items(), (NO_PERSONALITY, "without a personality")]


PERSONALITY = Command(
    name="personality",
    category="Model",
    help="List the personalities, or choose one for this conversation.",
    hint="[name|none]",
    during_turn="refused",
    who="owner",
    run=run_personality,
    offers=offer_personality_choices,
)


async def run_provider(context: CommandContext) -> None:
    """List the providers, or switch to one."""
    if context.arguments:
        await choose_model(context, context.arguments.removesuffix(":"))
        return
    listing = await context.application.models.list_models()
    here = context.active_session.chat.provider
    counts = Counter(one.provider for one in listing.models)
    lines = [
        f"- `{name}`: {pluralize(count, 'model')}{', used here' if name == here else ''}"
        for name, count in counts.items()
    ]
    problems = [f"- {problem}" for problem in listing.problems]
    end = "`/provider NAME` switches this conversation to a model of that provider."
    context.surface.show("\n".join([*lines, *problems, "", end]).strip())


async def offer_provider_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every usable provider as a completion."""
    listing = await context.application.models.get_cached_listing()
    counts = Counter(one.provider for one in listing.models)
    return [(name, pluralize(count, "model")) for name, count in counts.items()]


PROVIDER = Command(
    name="provider",
    category="Model",
    help="List the model providers, or switch this conversation to one.",
    hint="[name]",
    during_turn="refused",
    who="owner",
    run=run_provider,
    offers=offer_provider_choices,
)


async def run_reasoning(context: CommandContext) -> None:
    """Show the reasoning options, set the effort for this session, or show or hide reasoning."""
    word = context.arguments.lower()
    if not word:
        await _show_reasoning(context)
    elif word in VISIBILITY_HELP:
        context.surface.change_display(structs.replace(context.surface.display, reasoning=word == "show"))
        context.surface.show(f"The model's reasoning is now {'shown' if word == 'show' else 'hidden'} here.")
    elif word in EFFORTS:
        await set_preferences(context, effort="" if word == "default" else word)
        context.surface.show(
            f"Reasoning effort for this conversation: `{word}` ({EFFORTS[word]}).{_warn_if_unsupported(context)}"
        )
    else:
        raise NotFound(f"Unknown effort `{word}`. Choose one of {', '.join([*EFFORTS, *VISIBILITY_HELP])}.")


async def _show_reasoning(context: CommandContext) -> None:
    effort = (await get_preferences(context)).effort
    configured = next((one.value for one in context.application.settings_admin.list() if one.key == "model.effort"), "")
    chosen = (
        f"`{effort}`, chosen for this conversation"
        if effort
        else f"`{configured or 'model default'}`, as in the settings"
    )
    shown = "shown" if context.surface.display.reasoning else "hidden"
    context.surface.show(f"Reasoning effort: {chosen}. Reasoning output: {shown}.{_warn_if_unsupported(context)}")


def _warn_if_unsupported(context: CommandContext) -> str:
    chat = context.active_session.chat
    return "" if chat.info.reasoning or not chat.info.known else f" But `{chat.model}` has no reasoning."


async def offer_reasoning_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the efforts and the display options as completions."""
    return [*EFFORTS.items(), *VISIBILITY_HELP.items()]


REASONING = Command(
    name="reasoning",
    category="Model",
    help="Set the model's reasoning effort in this conversation, or show or hide its reasoning.",
    hint="[none|minimal|low|medium|high|default|show|hide]",
    who="owner",
    run=run_reasoning,
    offers=offer_reasoning_choices,
)
