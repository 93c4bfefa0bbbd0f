"""Open a conversation: store, model, tools and instructions put together for one front door."""

import hashlib
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from talaria.agent.approval.grants import Grant, allow_listed
from talaria.agent.approval.policy import ApprovalPolicy
from talaria.agent.auxiliary import Auxiliary
from talaria.agent.budget import Budget, Unlimited
from talaria.agent.loop import Agent, Manner
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.agent.prompt import DEFAULT_IDENTITY, TALKING_IDENTITY, Tiers, instructions, project_context
from talaria.agent.surroundings import Limits
from talaria.agent.toolbox import Toolbox
from talaria.agent.window import Window
from talaria.app.logs import close_log, open_log
from talaria.app.models import Models
from talaria.app.secrecy import secret_values
from talaria.app.stores import open_store
from talaria.app.subcommands import load
from talaria.app.toolsets import Workbench, make_tools
from talaria.contracts.models import ModelInfo
from talaria.contracts.provider import Provider
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.sessions import NewSession, Session, SessionFilter
from talaria.contracts.stores.turns import Step, Turn
from talaria.contracts.tool import Tool
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.events import TurnEvent
from talaria.sessions.approvals import SessionApprover
from talaria.sessions.budget import StoredBudget
from talaria.sessions.chat import Chat, ChatWish
from talaria.sessions.conversation import Conversation, Desk
from talaria.sessions.prefix import Prefix, find_prefix, keep_prefix
from talaria.sessions.questions import Questions
from talaria.sessions.summaries import StoredSummaries
from talaria.settings.files import read_file
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import KNOWN_SECRETS, Secrets
from talaria.tools.memory.tool import snapshot
from talaria.tools.output import masking
from talaria.tools.sandbox.bubblewrap import sandbox_available
from talaria.tools.skills.shelf import index
from talaria.tools.workspace import LocalWorkspace

_MICRODOLLARS = 1_000_000


class House(Struct, frozen=True, kw_only=True):
    """What every conversation of a process shares."""

    settings: Settings
    profile: Profile
    secrets: Secrets
    environment: Mapping[str, str]


async def open_chat(
    house: House, wish: ChatWish, emit: Callable[[TurnEvent], None], stack: AsyncExitStack, jobs: TaskGroup
) -> Chat:
    """Open a conversation whose tasks belong to ``jobs``; leaving ``stack`` closes it and all it opened."""
    house.profile.prepare()
    mask = masking(secret_values(house.settings, house.secrets))
    stack.callback(close_log, open_log(house.profile, house.settings.log.level, mask))
    store, notes = open_store(house.settings, house.profile)
    stack.push_async_callback(store.close)
    models = Models(_with_model(house.settings, wish.model), house.secrets, house.profile.folder)
    stack.push_async_callback(models.close)
    chosen, chain = await models.chosen(), await models.chain()
    if chosen.limits:
        notes += await store.write(lambda tx: _once(tx, f"said:{chosen.provider}", chosen.limits))
    session = await store.write(lambda tx: _session(tx, wish, chain[0].model))
    helpers = await models.auxiliary()
    bench = Workbench(
        settings=house.settings,
        profile=house.profile,
        store=store,
        session_id=session.id,
        surface=wish.source,
        folder=wish.folder,
        closing=stack,
        model=_info(chain),
        seer=_seer(helpers),
    )
    tools, remarks = await _tools(house, bench, wish, jobs)
    calls = ModelCalls(chain)
    auxiliary = Auxiliary(ModelCalls(helpers))
    toolbox = Toolbox(tools)
    prefix = await find_prefix(store, session.id, _prefix(bench, wish, toolbox))
    agent = _agent(bench, prefix, toolbox, calls, auxiliary)
    questions = Questions(emit, patience=house.settings.approval.timeout_seconds if wish.attended else 0)
    desk = structs.replace(
        await _desk(house, bench, session, questions, emit, _vouched(wish), mask),
        beforehand=lambda: keep_prefix(store, session.id, prefix),
    )
    conversation = Conversation(store, session.id, agent, desk, jobs, auxiliary=auxiliary, titled=wish.titled)
    stack.push_async_callback(conversation.close)
    return Chat(
        conversation=conversation,
        questions=questions,
        title=session.title,
        model=chain[0].model,
        notes=(*notes, *remarks, *_sandbox_note(house.settings)),
    )


def _sandbox_note(settings: Settings) -> list[str]:
    """Return a warning where a sandbox was asked for and there is none."""
    missing = sandbox_available() if settings.sandbox.enabled else None
    return [f"Commands run without the sandbox that the settings ask for: {missing}"] if missing else []


def _with_model(settings: Settings, wanted: str) -> Settings:
    """Return the settings with another model, written as ``PROVIDER:MODEL`` or just ``MODEL``."""
    if not wanted:
        return settings
    provider, colon, name = wanted.partition(":")
    if not colon:
        provider, name = settings.model.provider, wanted
    return structs.replace(settings, model=structs.replace(settings.model, provider=provider, name=name))


def _once(tx: Transaction, key: str, sentence: str) -> list[str]:
    """Return a sentence the first time it is to be said."""
    if tx.state.get(key):
        return []
    tx.state.put(key, sentence)
    return [sentence]


def _session(tx: Transaction, wish: ChatWish, model: str) -> Session:
    if not wish.resume and not wish.latest:
        return tx.sessions.create(NewSession(source=wish.source, model=model))
    wanted = SessionFilter(matching=wish.resume, source="" if wish.resume else wish.source, limit=2)
    found = tx.sessions.find(wanted)
    if not found:
        raise NotFound("There is no such conversation. `talaria sessions list` shows those there are.")
    if wish.resume and len(found) > 1:
        raise Ambiguous(f"`{wish.resume}` fits several conversations: name one by its id (`talaria sessions list`).")
    return found[0]


async def _tools(
    house: House, bench: Workbench, wish: ChatWish, jobs: TaskGroup
) -> tuple[Sequence[Tool], Sequence[str]]:
    """Return what the agent can do, with a sentence for each server of the settings that is not there."""
    if wish.tools is not None:
        return wish.tools, ()
    own = make_tools(bench)
    if not bench.model.tools or not house.settings.mcp:
        return own, ()
    logs = house.profile.logs_folder
    join = load("talaria.app.servers").join_servers
    others, notes = await join(house.settings.mcp, house.secrets, logs, bench.closing, jobs)
    return [*own, *(tool for tool in others if tool.name not in house.settings.tools.disabled)], notes


def _prefix(bench: Workbench, wish: ChatWish, toolbox: Toolbox) -> Prefix:
    model = bench.settings.model
    return Prefix(
        instructions(_tiers(bench, wish)),
        hashlib.sha256(msgspec.json.encode(toolbox.specs)).hexdigest(),
        bench.model.name,
        f"{model.effort} {model.temperature} {model.max_output_tokens}",
    )


def _agent(bench: Workbench, prefix: Prefix, toolbox: Toolbox, calls: ModelCalls, auxiliary: Auxiliary) -> Agent:
    model = bench.settings.model
    manner = Manner(
        instructions=prefix.instructions,
        effort=model.effort,
        max_output_tokens=model.max_output_tokens or None,
        temperature=model.temperature,
    )
    window = Window(bench.model, StoredSummaries(bench.store, bench.session_id), auxiliary)
    return Agent(calls, bench.model, toolbox, manner, window)


def _tiers(bench: Workbench, wish: ChatWish) -> Tiers:
    own = (read_file(bench.profile.folder / "SOUL.md") or b"").decode(errors="replace").strip()
    return Tiers(
        identity=wish.identity or own or (DEFAULT_IDENTITY if bench.model.tools else TALKING_IDENTITY),
        skills=index(bench.skill_folders),
        project=project_context(wish.folder),
        memory=snapshot(bench.memory_folder),
        surface=f"{wish.surface} Your working folder is {wish.folder}.".strip(),
    )


async def _desk(
    house: House,
    bench: Workbench,
    session: Session,
    questions: Questions,
    emit: Callable[[TurnEvent], None],
    vouched: Sequence[Grant],
    mask: Callable[[str], str],
) -> Desk:
    secrets = [secret.name for secret in KNOWN_SECRETS]
    workspace = LocalWorkspace(bench.folder, house.environment, secrets=secrets)
    kept = await bench.store.read(lambda tx: tx.state.get(f"workspace:{session.id}"))
    if kept is not None:
        workspace.restore(kept.value)
    approval = house.settings.approval
    policy = ApprovalPolicy(
        home=Path(house.environment.get("HOME", str(bench.folder))),
        mode=approval.mode,
        allowed=(*map(allow_listed, approval.allowed), *vouched),
        protected=(house.profile.folder,),
        readable=(bench.outputs.place(session.id),),
    )
    return Desk(
        emit=emit,
        person=questions,
        approver=SessionApprover(bench.store, session.id, policy, questions, workspace),
        workspace=workspace,
        limits=_limits(house.settings),
        mask=mask,
        budget=_budget(house.settings, bench.store, session),
        finishing=lambda tx, _end, _reply: _keep_workspace(tx, session, workspace),
        afterwards=await _exports(house.settings, bench, session),
    )


def _vouched(wish: ChatWish) -> list[Grant]:
    """Return permissions for tools that the caller brought along: whoever wrote them has said yes."""
    return [Grant(tool.name, tool.name, kind="irreversible") for tool in wish.tools or ()]


def _keep_workspace(tx: Transaction, session: Session, workspace: LocalWorkspace) -> None:
    """Keep folder and variables of a conversation with it, so that they are found again by whoever goes on."""
    tx.state.put(f"workspace:{session.id}", workspace.snapshot())


async def _exports(settings: Settings, bench: Workbench, session: Session) -> tuple[Callable[[], Awaitable[None]], ...]:
    """Return what sends finished turns to a collector, where one is configured."""
    if not settings.telemetry.endpoint:
        return ()
    telemetry = load("talaria.sessions.telemetry")
    exporter = await bench.closing.enter_async_context(
        telemetry.exporting(settings.telemetry.endpoint, settings.telemetry.headers)
    )

    async def export() -> None:
        def last(tx: Transaction) -> list[tuple[Turn, list[Step]]]:
            return [(turn, tx.turns.steps(turn.id)) for turn in tx.turns.find(session.id, limit=1)]

        for turn, steps in await bench.store.read(last):
            exporter.finished(session, turn, steps)

    return (export,)


def _limits(settings: Settings) -> Limits:
    return Limits(
        iterations=settings.agent.max_iterations,
        tokens=settings.agent.max_turn_tokens or None,
        cost_microdollars=round(settings.budget.turn * _MICRODOLLARS) or None,
        seconds=settings.agent.max_turn_seconds or None,
    )


def _budget(settings: Settings, store: Store, session: Session) -> Budget:
    month = f"{datetime.now(UTC):%Y-%m}"
    caps = (
        (f"all:{month}", settings.budget.total),
        (f"person:{session.owner}:{month}", settings.budget.person),
        (f"session:{session.id}", settings.budget.session),
    )
    held = [Cap(account, round(dollars * _MICRODOLLARS)) for account, dollars in caps if dollars]
    return StoredBudget(store, held) if held else Unlimited()


def _seer(helpers: tuple[ModelChoice, ...]) -> tuple[Provider, str] | None:
    """Return the first of the auxiliary models that can see pictures."""
    seeing = (choice for choice in helpers if choice.info is not None and choice.info.images)
    return next(((choice.provider, choice.model) for choice in seeing), None)


def _info(chain: tuple[ModelChoice, ...]) -> ModelInfo:
    return chain[0].info or ModelInfo(name=chain[0].model, known=False)
