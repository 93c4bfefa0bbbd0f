"""Open a conversation: store, model, tools and instructions put together for one front door."""

import hashlib
from asyncio import TaskGroup
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Struct, structs

from talaria.agent.approval.grants import Grant, allow_listed
from talaria.agent.approval.policy import ApprovalPolicy
from talaria.agent.auxiliary import Auxiliary
from talaria.agent.loop import Agent, Manner
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.agent.prompt import DEFAULT_IDENTITY, TALKING_IDENTITY, Tiers, checked, instructions, project_context
from talaria.agent.toolbox import Toolbox
from talaria.agent.window import Window
from talaria.app.allowances import budget_of, limits_of
from talaria.app.delegates import CallsClosed, Delegating, end_background
from talaria.app.goals import goal_follower
from talaria.app.guests import is_same_person, rules_for, standing, wants_servers, working_folder
from talaria.app.personalities import read_personality
from talaria.app.subcommands import load
from talaria.app.toolsets import Workbench, make_tools, may_use
from talaria.app.workplaces import Workplace
from talaria.contracts.follower import Ending, Follower
from talaria.contracts.models import Chosen, ModelInfo
from talaria.contracts.provider import Effort, Provider
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession, Session, SessionFilter
from talaria.contracts.tool import Tool
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.ids import SessionId
from talaria.core.remembered import Remembered
from talaria.core.session_context import SessionContext, variables
from talaria.sessions.approvals import SessionApprover
from talaria.sessions.branching import lineage
from talaria.sessions.chat import Chat, ChatWish
from talaria.sessions.conversation import Conversation, Desk
from talaria.sessions.naming import find_by_name
from talaria.sessions.preferences import Preferences, read_preferences
from talaria.sessions.prefix import Prefix, keep_prefix, prefix_to_use, read_prefix
from talaria.sessions.prospect import AgentParts, Prospect
from talaria.sessions.questions import Questions
from talaria.sessions.seat import Emit
from talaria.sessions.summaries import StoredHistory
from talaria.sessions.waking import Told
from talaria.settings.errors import ProfileUnusable
from talaria.settings.folder_trust import FolderTrust
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile, find_home
from talaria.tools.mcp.session_servers import SessionServers
from talaria.tools.memory.tool import snapshot
from talaria.tools.sandbox.bubblewrap import sandbox_available
from talaria.tools.skills.shelf import index
from talaria.tools.skills.tool import Skills
from talaria.tools.workspace import LocalWorkspace

_LEFT_OUT = "(its description was left out: it tries to give orders)"

if TYPE_CHECKING:  # the house opens conversations; they only look at it
    from talaria.app.house import House


async def prospect(house: "House", wish: ChatWish) -> Prospect:
    """Return what the agent of this conversation would be, if it were opened now."""
    session, kept = await house.store.read(lambda tx: _find(tx, wish))
    settings = _with_choices(house.settings, kept, wish.model)
    chosen = await house.models.chosen(settings.model)
    owner = session.owner if session else wish.owner
    return Prospect(_signature(house, settings, chosen, kept, wish, owner), settings.model.effort)


async def open_chat(house: "House", wish: ChatWish, emit: Emit, stack: AsyncExitStack, jobs: TaskGroup) -> Chat:
    """Open a conversation whose tasks belong to ``jobs``; leaving ``stack`` closes it, but for a kept workplace."""
    store, models = house.store, house.models
    found = _Found(wish.begins) if wish.begins else await store.read(lambda tx: _found(tx, wish))
    kept, settings = found.preferences, _with_choices(house.settings, found.preferences, wish.model)
    chosen = await models.chosen(settings.model)
    chain, helpers = models.chain(chosen), models.auxiliary(chosen)
    notes = await store.write(lambda tx: _once(tx, f"said:{chosen.provider}", chosen.limits)) if chosen.limits else []
    session = found.session or await _new_session(store, wish, chosen.model)
    signature = _signature(house, settings, chosen, kept, wish, session.owner)
    wish = structs.replace(wish, folder=working_folder(house.profile, wish, session))
    context = _context(wish, session)
    place = _workplace(house, wish, session, context, stack, found.workspace)
    bench = structs.replace(
        _bench(house, wish, session, settings, _info(chain), stack),
        past=found.past,
        seer=_seer(helpers),
        processes=place.processes,
    )
    questions = _questions(house, wish, emit)
    delegating = Delegating(house, wish, context, bench.viewer, f"{chosen.provider}:{chosen.model}", questions, jobs)
    bench = structs.replace(bench, delegator=delegating)
    tools, remarks = await _tools(house, bench, wish, jobs, context, place.servers)
    auxiliary, toolbox = Auxiliary(ModelCalls(helpers, heard=models.health.heard)), _toolbox(tools, delegating)
    prefix = _prefix(bench, wish, toolbox, found)
    agent = _agent(house, bench, prefix, toolbox, ModelCalls(chain, heard=models.health.heard), auxiliary)
    desk = await _desk(house, bench, session, questions, emit, wish, place.workspace)
    beforehand = _keeping(bench, prefix, kept.personality)
    desk = structs.replace(_followed(desk, bench, session, wish, auxiliary), context=context, beforehand=beforehand)
    titled = wish.titled and not session.title
    conversation = Conversation(store, session.id, agent, desk, jobs, auxiliary=auxiliary, titled=titled)
    stack.push_async_callback(conversation.close)
    return Chat(
        conversation=conversation,
        questions=questions,
        title=session.title,
        model=chosen.model,
        provider=chosen.provider,
        why=_why(chosen, kept, wish),
        signature=signature,
        info=bench.model,
        workspace=place.workspace,
        keep_workplace=place.keep,
        end_work=lambda: end_background(house, session.id),
        delegator=delegating,
        is_same_person=desk.is_same_person,
        notes=(*notes, *remarks, *_sandbox_note(settings), *_trust_note(house, wish)),
    )


def _toolbox(tools: Sequence[Tool], delegating: Delegating) -> Toolbox:
    """Return the tools of the agent, which are also all that it has to give where it hands tasks on."""
    delegating.tools = tuple(tool.name for tool in tools)
    return Toolbox(tools)


def _context(wish: ChatWish, session: Session) -> SessionContext:
    """Return what is known of the place; one that does not stay open cannot be woken there."""
    wakes = wish.lasting and wish.context.async_delivery
    return structs.replace(wish.context, source=wish.source, session_id=session.id, async_delivery=wakes)


def _questions(house: "House", wish: ChatWish, emit: Emit) -> Questions:
    """Return who is asked: those at the place, or whoever the task came from."""
    if wish.mandate is not None and wish.mandate.questions is not None:
        return wish.mandate.questions
    return Questions(emit, patience=lambda: house.settings.approval.timeout_seconds if wish.attended else 0)


def _bench(
    house: "House", wish: ChatWish, session: Session, settings: Settings, model: ModelInfo, stack: AsyncExitStack
) -> Workbench:
    """Return what tools are made of, as far as the conversation and its place say."""
    return Workbench(
        settings=settings,
        profile=house.profile,
        store=house.store,
        session_id=session.id,
        surface=wish.source,
        folder=wish.folder,
        closing=stack,
        model=model,
        guest=bool(session.owner),
        background=house.processes,
        networks=tuple(load("talaria.app.platforms").enabled_platforms(house.settings, house.secrets)),
        viewer=standing(wish, session),
        file_limit=wish.file_limit,
        mandate=wish.mandate,
    )


def _trust_note(house: "House", wish: ChatWish) -> list[str]:
    """Return a notice where a project brings files that take no effect; a terminal chat asks instead."""
    if wish.lasting or FolderTrust(house.profile.folder).is_trusted(wish.folder):
        return []
    return [f"Commands and skills of {wish.folder} are ignored: `talaria trust {wish.folder}` lets them take effect."]


def _sandbox_note(settings: Settings) -> list[str]:
    """Return a warning where a sandbox was asked for and there is none."""
    missing = sandbox_available() if settings.sandbox.enabled else None
    return [f"Commands can't run: sandbox.enabled is on, and there is no sandbox here: {missing}"] if missing else []


def _with_choices(settings: Settings, kept: Preferences, wanted: str) -> Settings:
    """Return the settings with what was chosen for a conversation; ``wanted`` is a model for this time alone."""
    provider, colon, name = (wanted or kept.model).partition(":")
    if not colon:
        provider, name = settings.model.provider, provider or settings.model.name
    effort = cast("Effort", kept.effort) or settings.model.effort
    return structs.replace(settings, model=structs.replace(settings.model, provider=provider, name=name, effort=effort))


def _signature(
    house: "House", settings: Settings, chosen: Chosen, kept: Preferences, wish: ChatWish, owner: str
) -> str:
    """Return what stands for all that cannot be changed on an agent once it is there."""
    base_url, api_mode, api_key = house.models.access(chosen.provider)
    fixed = (
        wish.surface,
        wish.identity,
        str(wish.folder),
        kept.personality,
        settings.access.guest_tools,
        structs.replace(settings.model, effort=""),
        owner,
        settings.models.get(chosen.model),
        settings.delegation.depth,
        (settings.goals.judge_seconds, settings.goals.verify_seconds),
    )
    parts = AgentParts(
        model=chosen.model,
        provider=chosen.provider,
        base_url=base_url,
        api_mode=api_mode,
        api_key=api_key,
        toolsets=(*settings.tools.toolsets, *(f"-{name}" for name in settings.tools.disabled)),
        extras=msgspec.json.encode((fixed, settings.mcp)).decode(),
    )
    return parts.signature()


def _why(chosen: Chosen, kept: Preferences, wish: ChatWish) -> str:
    if wish.model:
        return "It was asked for when this was opened."
    return "It was chosen for this conversation." if kept.model else chosen.why


def _once(tx: Transaction, key: str, sentence: str) -> list[str]:
    """Return a sentence the first time it is to be said."""
    if tx.state.get(key):
        return []
    tx.state.put(key, sentence)
    return [sentence]


def _new(wish: ChatWish, model: str) -> NewSession:
    return NewSession(source=wish.source, model=model, owner=wish.owner, audience=wish.audience)


async def _new_session(store: Store, wish: ChatWish, model: str) -> Session:
    return await store.write(lambda tx: tx.sessions.create(_new(wish, model)))


def _find(tx: Transaction, wish: ChatWish) -> tuple[Session | None, Preferences]:
    """Return the conversation to go on with, and what was chosen for it; none where a new one is wanted."""
    if not wish.resume and not wish.latest:
        return None, Preferences()
    if wish.resume and (exact := tx.sessions.get(SessionId(wish.resume))):
        return exact, read_preferences(tx, exact.id)
    source = "" if wish.resume else wish.source
    wanted = SessionFilter(matching=wish.resume, source=source, owner=wish.owner, limit=2)
    found = find_by_name(tx, wanted)
    if not found:
        raise NotFound("There is no such conversation. `talaria sessions list` lists all of them.")
    if wish.resume and len(found) > 1:
        raise Ambiguous(f"`{wish.resume}` fits several conversations: name one by its id (`talaria sessions list`).")
    return found[0], read_preferences(tx, found[0].id)


class _Found(Struct, frozen=True):
    """What is kept of the conversation to go on with; nothing where a new one is wanted."""

    session: Session | None = None
    preferences: Preferences = Preferences()
    past: tuple[SessionId, ...] = ()
    workspace: str = ""
    prefix: Prefix | None = None


def _found(tx: Transaction, wish: ChatWish) -> _Found:
    session, preferences = _find(tx, wish)
    if session is None:
        return _Found()
    workspace = tx.state.get(f"workspace:{session.id}")
    return _Found(
        session,
        preferences,
        lineage(tx, session),
        workspace.value if workspace else "",
        read_prefix(tx, session.id),
    )


async def _tools(
    house: "House",
    bench: Workbench,
    wish: ChatWish,
    jobs: TaskGroup,
    context: SessionContext,
    servers: SessionServers,
) -> tuple[Sequence[Tool], Sequence[str]]:
    """Return what the agent can do, with a sentence for each server of the settings that is not there."""
    if wish.tools is not None:
        return wish.tools, ()
    house.processes.attend(jobs, bench.closing)
    own = make_tools(bench)
    if not bench.model.tools or not house.settings.mcp or not wants_servers(bench):
        return own, ()
    logs = house.profile.logs_folder
    join = load("talaria.app.servers").join_servers
    others, notes = await join(house.settings.mcp, house.secrets, logs, servers, jobs, variables(context))
    wanted = [one for one in others if one.name not in house.settings.tools.disabled and may_use(bench, one.name)]
    return [*own, *wanted], notes


def _prefix(bench: Workbench, wish: ChatWish, toolbox: Toolbox, found: _Found) -> Prefix:
    personality = found.preferences.personality
    wanted = Prefix(
        instructions="",
        tools=hashlib.sha256(msgspec.json.encode(toolbox.specs)).hexdigest(),
        model=bench.model.name,
        manner=_manner(bench.settings, bench.settings.model.effort, personality),
        audience=bench.viewer.audience,
    )
    return prefix_to_use(found.prefix, wanted, lambda: instructions(_tiers(bench, wish, personality)))


def _manner(settings: Settings, effort: Effort, personality: str) -> str:
    model = settings.model
    return f"{effort} {model.temperature} {model.max_output_tokens} {personality}".rstrip()


def _keeping(bench: Workbench, prefix: Prefix, personality: str) -> Callable[[Transaction, Effort], None]:
    """Return what keeps the prefix as it is used: the effort may have been changed since."""

    def keep(tx: Transaction, effort: Effort) -> None:
        manner = _manner(bench.settings, effort, personality)
        keep_prefix(tx, bench.session_id, structs.replace(prefix, manner=manner))

    return keep


def _agent(
    house: "House", bench: Workbench, prefix: Prefix, toolbox: Toolbox, calls: ModelCalls, auxiliary: Auxiliary
) -> Agent:
    model = bench.settings.model
    manner = Manner(
        instructions=prefix.instructions,
        effort=model.effort,
        max_output_tokens=model.max_output_tokens or None,
        temperature=model.temperature,
    )
    window = Window(bench.model, StoredHistory(bench.store, bench.session_id), auxiliary, house.window_memory)
    return Agent(calls, bench.model, toolbox, manner, window)


def _tiers(bench: Workbench, wish: ChatWish, personality: str) -> Tiers:
    identity = wish.identity or _soul(bench.profile) or (DEFAULT_IDENTITY if bench.model.tools else TALKING_IDENTITY)
    manner = read_personality(bench.profile.folder, personality) if personality else ""
    return Tiers(
        identity=f"{identity}\n\n{manner}".strip(),
        skills=_skills(bench) if may_use(bench, Skills.name) else "",
        project=project_context(wish.folder),
        memory=snapshot(bench.memory_folder, bench.viewer),
        surface=f"{wish.surface} Your working folder is {wish.folder}.".strip(),
    )


def _skills(bench: Workbench) -> str:
    """Return the index of skills, without descriptions that try to give orders."""
    lines = index(bench.skill_folders).splitlines()
    return "\n".join(one if checked(one) is not None else f"{one.partition(':')[0]}: {_LEFT_OUT}" for one in lines)


def _soul(profile: Profile) -> str:
    """Return what the agent is by its owner's own words, if there are any."""
    path = f"{profile.folder}/SOUL.md"
    try:
        return _SOULS.get(path) or ""
    except OSError as error:
        raise ProfileUnusable(Path(path), "cannot be read", error) from error


_SOULS = Remembered(str.strip)


def _workplace(
    house: "House", wish: ChatWish, session: Session, context: SessionContext, stack: AsyncExitStack, kept: str
) -> Workplace:
    """Return where the conversation works: as it was left in this process, else as the store remembers it."""
    session_id = session.id
    workspace = LocalWorkspace(wish.folder, house.given)
    if kept:
        workspace.restore(kept)
    if session.owner and not workspace.folder.is_relative_to(wish.folder):
        workspace.move_to(wish.folder)
    place = house.workplaces.enter(session_id, workspace, context)
    stack.callback(house.workplaces.leave, session_id)
    return place


async def _desk(
    house: "House",
    bench: Workbench,
    session: Session,
    questions: Questions,
    emit: Emit,
    wish: ChatWish,
    workspace: LocalWorkspace,
) -> Desk:
    scratch: set[str] = set()

    def settings() -> Settings:
        return house.settings

    def policy() -> ApprovalPolicy:
        approval = house.settings.approval
        return ApprovalPolicy(
            home=Path(house.environment.get("HOME", str(bench.folder))),
            mode=approval.mode,
            allowed=(*map(allow_listed, approval.allowed), *_vouched(wish)),
            protected=(house.profile.folder, house.profile.guests_folder, find_home(house.environment) / "profiles"),
            scratch=scratch,
            readable=(*bench.output_places, *([bench.folder] if bench.guest else [])),
        )

    return Desk(
        emit=emit,
        person=questions,
        approver=SessionApprover(
            bench.store, _granted_to(bench), rules_for(bench, policy, settings), questions, workspace
        ),
        workspace=workspace,
        limits=lambda: limits_of(house.settings, bench.mandate),
        mask=house.mask,
        owner=bench.viewer.owner,
        audience=bench.viewer.audience,
        lease=timedelta(seconds=house.settings.gateway.lease_seconds),
        budget=budget_of(settings, bench.store, session, wish),
        is_same_person=partial(is_same_person, settings),
        witnesses=(_WorkspaceKeeper(workspace),),
        followers=(CallsClosed(house.end_workplace), *await _exports(house.settings, bench, session)),
    )


def _followed(desk: Desk, bench: Workbench, session: Session, wish: ChatWish, auxiliary: Auxiliary) -> Desk:
    """Return the desk with all who hear of turns, and with who fetches files."""
    told = (Told(wish.context.session_key),) if wish.lasting else ()
    goal = goal_follower(bench, desk, auxiliary, lasting=wish.lasting)
    return structs.replace(
        desk,
        unpack=wish.unpack,
        held_up=wish.held_up,
        witnesses=(*desk.witnesses, *wish.witnesses),
        followers=(*desk.followers, *wish.followers, *told, goal),
    )


def _vouched(wish: ChatWish) -> list[Grant]:
    """Return permissions for tools that the caller brought along: whoever wrote them has said yes."""
    return [Grant(tool.name, tool.name, kind="irreversible") for tool in wish.tools or ()]


class _WorkspaceKeeper:
    """Implements `Witness`: folder and variables of a conversation are kept, for whoever goes on with it."""

    def __init__(self, workspace: LocalWorkspace) -> None:
        self._workspace = workspace

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Keep them as they are now."""
        tx.state.put(f"workspace:{ending.session_id}", self._workspace.snapshot())


async def _exports(settings: Settings, bench: Workbench, session: Session) -> list[Follower]:
    """Return what sends finished turns to a collector, where one is configured."""
    if not settings.telemetry.endpoint:
        return []
    telemetry = load("talaria.sessions.telemetry")
    exporter = await bench.closing.enter_async_context(
        telemetry.exporting(settings.telemetry.endpoint, settings.telemetry.headers)
    )
    return [telemetry.TurnExports(bench.store, session, exporter)]


def _granted_to(bench: Workbench) -> SessionId:
    """Return where it is kept what a person has allowed: in the conversation that they are in."""
    return bench.mandate.root if bench.mandate is not None else bench.session_id


def _seer(helpers: tuple[ModelChoice, ...]) -> tuple[Provider, str] | None:
    """Return the first of the auxiliary models that can see pictures."""
    seeing = (choice for choice in helpers if choice.info is not None and choice.info.images)
    return next(((choice.provider, choice.model) for choice in seeing), None)


def _info(chain: tuple[ModelChoice, ...]) -> ModelInfo:
    return chain[0].info or ModelInfo(name=chain[0].model, known=False)
