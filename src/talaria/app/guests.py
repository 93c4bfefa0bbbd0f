"""What is different where others than the owner take part: what they see, where they work, what they may do."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import structs

from talaria.agent.approval.confinement import Confinement
from talaria.agent.approval.policy import ApprovalPolicy
from talaria.app.subcommands import load
from talaria.app.toolsets import OTHERS, TOOLSETS, Workbench, for_guests
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.core.senders import OWNER, UNKNOWN, is_same_sender
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


def rules_for(
    bench: Workbench, policy: Callable[[], ApprovalPolicy], settings: Callable[[], Settings]
) -> Callable[[], ApprovalPolicy]:
    """Return the rules by which a call is judged, made of the settings in force at that call.

    Where several people speak in a conversation of the owner's, a turn that another person began has the rules for
    guests. No text of another person joins a turn, so the rules of a turn are those of each text in it.
    """
    if not bench.guest and not bench.viewer.owner:
        return policy
    places = (bench.folder, *bench.output_places)

    def confined() -> ApprovalPolicy:
        return structs.replace(policy(), confined=Confinement(places, partial(for_guests, settings())))

    if bench.guest:
        return confined
    return lambda: policy() if _is_owners_turn(settings()) else confined()


def is_same_person(settings: Callable[[], Settings], one: str, other: str) -> bool:
    """Return whether two senders are one person: the owner, a person of `people`, or the same id."""
    known = settings()
    return is_same_sender(_person(known, one), _person(known, other))


def _is_owners_turn(settings: Settings) -> bool:
    context = current_context()
    return context is not None and _person(settings, context.sender) == OWNER


def _person(settings: Settings, sender: str) -> str:
    if sender in (OWNER, UNKNOWN):
        return sender
    platform, _, user_id = sender.partition(":")
    people = load("talaria.gateway.identity").People(settings.people)
    if people.names(platform, {user_id}) & set(settings.access.owners):
        return OWNER
    person: str = people.person(platform, (user_id,))
    return f"person:{person}"
