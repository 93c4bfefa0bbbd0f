"""Agent spec of a session: stored preferences, chosen model and signature."""

from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import structs

from talaria.contracts.models import ChosenModel
from talaria.contracts.provider import Effort
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.ids import SessionId
from talaria.runtime.agent_cache import AgentSignature, AgentSpec
from talaria.runtime.open_session import OpenRequest
from talaria.sessions.preferences import Preferences, read_preferences
from talaria.sessions.titles import find_by_name
from talaria.settings.model import Settings

if TYPE_CHECKING:  # the application opens sessions
    from talaria.app.application import TalariaApplication


async def agent_spec(application: "TalariaApplication", request: OpenRequest) -> AgentSpec:
    """Return the spec of the agent that a session would get if it were opened now."""
    session, kept = await application.store.read(lambda tx: find_session(tx, request))
    settings = apply_preferences(application.settings, kept, request.model)
    chosen = await application.models.chosen(settings.model)
    owner = session.owner if session else request.owner
    return AgentSpec(make_signature(application, settings, chosen, kept, request, owner), settings.model.effort)


def apply_preferences(settings: Settings, kept: Preferences, wanted: str) -> Settings:
    """Return the settings with the preferences of a session; ``wanted`` is a model for this opening only."""
    provider, colon, name = (wanted or kept.model).partition(":")
    if not colon:
        provider, name = settings.model.provider, provider or settings.model.name
    effort = cast("Effort", kept.effort) or settings.model.effort
    return structs.replace(settings, model=structs.replace(settings.model, provider=provider, name=name, effort=effort))


def make_signature(
    application: "TalariaApplication",
    settings: Settings,
    chosen: ChosenModel,
    kept: Preferences,
    request: OpenRequest,
    owner: str,
) -> str:
    """Return a signature of everything that cannot be changed on an existing agent."""
    base_url, api_mode, api_key = application.models.access(chosen.provider)
    fixed = (
        request.surface,
        request.identity,
        str(request.folder),
        kept.personality,
        settings.access.guest_tools,
        structs.replace(settings.model, effort=""),
        owner,
        settings.models.get(chosen.model),
        settings.delegation.depth,
        (settings.goals.judge_seconds, settings.goals.verify_seconds),
    )
    parts = AgentSignature(
        model=chosen.model,
        provider=chosen.provider,
        base_url=base_url,
        api_mode=api_mode,
        api_key=api_key,
        toolsets=(*settings.tools.toolsets, *(f"-{name}" for name in settings.tools.disabled)),
        extras=msgspec.json.encode((fixed, settings.mcp)).decode(),
    )
    return parts.signature()


def explain_model(chosen: ChosenModel, kept: Preferences, request: OpenRequest) -> str:
    """Return a sentence that explains why this model was chosen."""
    if request.model:
        return "Chosen when this chat was opened."
    return "Chosen for this conversation." if kept.model else chosen.why


def find_session(tx: Transaction, request: OpenRequest) -> tuple[Session | None, Preferences]:
    """Return the session to resume with its preferences, or none for a new one.

    Raises `NotFound` if there is no such session and `Ambiguous` if several have that name.
    """
    if not request.resume and not request.latest:
        return None, Preferences()
    if request.resume and (exact := tx.sessions.get(SessionId(request.resume))):
        return exact, read_preferences(tx, exact.id)
    source = "" if request.resume else request.source
    wanted = SessionFilter(matching=request.resume, source=source, owner=request.owner, limit=2)
    found = find_by_name(tx, wanted)
    if not found:
        raise NotFound("There is no such conversation. `talaria sessions list` lists all of them.")
    if request.resume and len(found) > 1:
        raise Ambiguous(f"`{request.resume}` matches several conversations. Use an id from `talaria sessions list`.")
    return found[0], read_preferences(tx, found[0].id)
