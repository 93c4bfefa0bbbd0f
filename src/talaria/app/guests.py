"""What is different where others than the owner take part: what they see, where they work, what they may do."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from msgspec import structs

from talaria.agent.approval.confinement import Confinement
from talaria.agent.approval.policy import ApprovalPolicy
from talaria.app.subcommands import load
from talaria.app.toolsets import OTHERS, TOOLSETS, Workbench, for_guests
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.core.session_context import current_context
from talaria.sessions.chat import ChatWish
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.own_places import folder_of

_OWNER_ONLY = 0o700


def standing(wish: ChatWish, session: Session) -> Viewer:
    """Return as whom and before whom a conversation goes on in a place.

    Whoever reads along in the place counts, and so do those who did where the conversation was before. Where several
    people speak in it, it is theirs, whoever brought it there.
    """
    audience = wish.audience or session.audience
    shared = bool(audience) and wish.owner == audience
    return Viewer(audience if shared else session.owner, audience)


def working_folder(profile: Profile, wish: ChatWish, session: Session) -> Path:
    """Return where a conversation works: guests have folders that nobody else has, outside of the profile's own."""
    if not session.owner:
        return wish.folder
    folder = folder_of(standing(wish, session), profile.guests_folder)
    folder.mkdir(_OWNER_ONLY, parents=True, exist_ok=True)
    return folder


def wants_servers(bench: Workbench) -> bool:
    """Tell whether tools of MCP servers could be of use in a conversation."""
    ours = {*TOOLSETS, *(kind.name for toolset in TOOLSETS.values() for kind in toolset.kinds)} - {OTHERS}
    if bench.mandate is not None and ours.issuperset(bench.mandate.tools):
        return False
    return not bench.guest or not ours.issuperset(bench.settings.access.guest_tools)


def rules_for(bench: Workbench, policy: Callable[[], ApprovalPolicy]) -> Callable[[], ApprovalPolicy]:
    """Return what says by which rules a call is judged now; they are made for the first call.

    A conversation of the owner that was brought to a place where several people speak is the owner's only in the
    turns that the owner has begun.
    """
    if not bench.guest and not bench.viewer.owner:
        return policy

    @cache
    def confined() -> ApprovalPolicy:
        places = (bench.folder, *bench.output_places)
        return structs.replace(policy(), confined=Confinement(places, partial(for_guests, bench.settings)))

    if bench.guest:
        return confined
    return lambda: policy() if _is_owners_turn(bench.settings) else confined()


def _is_owners_turn(settings: Settings) -> bool:
    context = current_context()
    if context is None or not context.user_id:
        return False
    people = load("talaria.gateway.identity").People(settings.people)
    return bool(people.names(context.platform, {context.user_id}) & set(settings.access.owners))
