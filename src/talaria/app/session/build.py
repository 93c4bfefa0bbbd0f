"""Builder of open sessions: store, model, tools, prompt and runner for one surface."""

from asyncio import TaskGroup
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from talaria.agent.approval.grants import Grant, parse_allow_entry
from talaria.agent.auxiliary import Auxiliary
from talaria.agent.context_window import ContextWindow
from talaria.agent.environment import Budget, Limits, TurnEnvironment
from talaria.agent.loop import AgentLoop, ModelOptions
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.agent.toolbox import Toolbox
from talaria.app.session.agent_spec import (
    SessionTools,
    StoredSession,
    apply_preferences,
    explain_model,
    follow_settings_file,
    make_signature,
    read_stored_session,
)
from talaria.app.session.delegation_proxy import LazyDelegator, end_background, end_open_calls
from talaria.app.session.toolsets import (
    ToolContext,
    build_approval_policy,
    list_sandbox_notes,
)
from talaria.app.session.workspaces import (
    OpenWorkspace,
    is_same_person,
    make_working_folder,
    resolve_turn_person,
    resolve_viewer,
)
from talaria.contracts.hooks import NoHooks
from talaria.contracts.provider import ChosenModel, ModelInfo, Provider
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession, Session
from talaria.contracts.stores.turns import Cap
from talaria.contracts.tool import ChangeRecorder
from talaria.contracts.turns import AfterCommit, TurnFollowUp, TurnListener, TurnResult
from talaria.contracts.values import NamedValue
from talaria.core.ids import SessionId
from talaria.goals.goal import GoalRecorder, read_goal_caps
from talaria.runtime.completions import CompletionListener
from talaria.runtime.open_session import WORKSPACE, DelegatedScope, OpenRequest, OpenSession, UnsavedSession
from talaria.runtime.questions import Questions, StoredApprover
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.runtime.turn_environment import StoredBudget, TurnEvents, build_caps, build_persona_caps
from talaria.sessions.model_context import Prefix, StoredHistory
from talaria.sessions.preferences import Preferences, start_planning, write_preferences
from talaria.settings.model import LiveSettings, Settings
from talaria.settings.profiles import FolderTrust, find_home
from talaria.tools.workspace import LocalWorkspace

if TYPE_CHECKING:  # the application opens sessions; the policy is loaded with the first tool call
    from talaria.agent.approval.policy import ApprovalPolicy, ApprovalRule
    from talaria.app.application import TalariaApplication
    from talaria.app.media_models import SessionMedia

_MICRODOLLARS = 1_000_000
PROVIDER_NOTE = NamedValue("provider_note", str)  # what was said once, by provider


async def open_session(
    application: "TalariaApplication", request: OpenRequest, stack: AsyncExitStack, jobs: TaskGroup
) -> OpenSession:
    """Open a session whose tasks belong to ``jobs``; leaving ``stack`` closes it, except for a kept workspace."""
    store = application.store
    read = partial(read_stored_session, request=request)
    unsaved = request.session if isinstance(request.session, UnsavedSession) else None
    found = StoredSession(unsaved.session) if unsaved is not None else await store.read(read)
    settings, request = apply_preferences(application.settings, found.preferences, request)
    models = await _choose_models(application, settings)
    session = found.session or await _create_session(store, request, models.chosen.model)
    signature = make_signature(application, settings, models.chosen, found.preferences, request, session.owner)
    request = _complete_request(application, request, session)
    workplace = _enter_workspace(application, request, session, stack, found.workspace)
    events = TurnEvents()
    questions = _make_questions(application, request, events)
    budget = _build_budget(application.settings_admin, store, session, request)
    auxiliary = Auxiliary(models.helpers, budget)
    tool_context = _build_tool_context(application, request, session, settings, models, workplace, stack)
    delegator = LazyDelegator(application, request, tool_context.viewer, models.name, questions, events.publish, jobs)
    media = cache(partial(_open_media, application, budget, session.id))
    tool_context = structs.replace(tool_context, past=found.past, delegator=delegator, media=media)
    tools = SessionTools(application, tool_context, request, jobs, workplace, delegator)
    prefix = await tools.open(found.preferences.personality, found.prefix)
    agent = _make_agent(application, tool_context, prefix, tools.toolbox, models.calls, auxiliary)
    workspace = workplace.workspace
    environment = _build_environment(application, tool_context, request, events, questions, workspace, budget)
    options = await _build_options(application, tool_context, session, request, environment, auxiliary, workspace)
    options = structs.replace(options, before_first_turn=tools.save_prefix, renew_agent=tools.renewal)
    runner = SessionRunner(store, session.id, agent, environment, jobs, auxiliary=auxiliary, options=options)
    stack.push_async_callback(runner.close)
    notes = [*models.notes, *tools.notes, *await list_sandbox_notes(tool_context)]
    return OpenSession(
        conversation=runner,
        events=events,
        questions=questions,
        title=session.title,
        model=models.chosen.model,
        provider=models.chosen.provider,
        why=explain_model(models.chosen, found.preferences, request),
        signature=signature,
        info=models.info,
        workspace=workspace,
        keep_workspace=workplace.keep,
        end_background_work=partial(end_background, application, session.id),
        delegator=delegator,
        is_same_person=options.is_same_person,
        servers=tools,
        notes=(*notes, *_make_trust_note(application, request)),
    )


class _SessionModels(Struct, frozen=True):
    """The models of a session: ``helpers`` for auxiliary calls, ``vision`` is one of them that accepts images."""

    chosen: ChosenModel
    calls: ModelCalls
    info: ModelInfo
    helpers: ModelCalls
    vision: tuple[Provider, str] | None
    notes: list[str]

    @property
    def name(self) -> str:
        """Provider and model, in the form of the setting."""
        return f"{self.chosen.provider}:{self.chosen.model}"


async def _choose_models(application: "TalariaApplication", settings: Settings) -> _SessionModels:
    models = application.models
    chosen = await models.resolve_default_model(settings.model)
    chain, helpers = models.build_chain(chosen), models.build_auxiliary_chain(chosen)
    notes = []
    if chosen.limits:
        notes = await application.store.write(lambda tx: _note_once(tx, chosen.provider, chosen.limits))
    return _SessionModels(
        chosen,
        ModelCalls(chain, on_result=models.health.record_outcome),
        chain[0].info or ModelInfo(name=chain[0].model, known=False),
        ModelCalls(helpers, on_result=models.health.record_outcome),
        _find_vision_model(helpers),
        notes,
    )


def _find_vision_model(helpers: tuple[ModelChoice, ...]) -> tuple[Provider, str] | None:
    """Return the first auxiliary model that accepts images."""
    vision_choices = (choice for choice in helpers if choice.info is not None and choice.info.images)
    return next(((choice.provider, choice.model) for choice in vision_choices), None)


def _note_once(tx: Transaction, provider: str, sentence: str) -> list[str]:
    """Return the sentence, but only the first time for this provider in this store."""
    if PROVIDER_NOTE.get(tx, provider) is not None:
        return []
    PROVIDER_NOTE.write(tx, provider, sentence)
    return [sentence]


async def _create_session(store: Store, request: OpenRequest, model: str) -> Session:
    new = NewSession(source=request.surface.source, model=model, owner=request.owner, audience=request.audience)

    def create(tx: Transaction) -> Session:
        session = tx.sessions.create(new)
        if request.persona:
            write_preferences(tx, session.id, Preferences(persona=request.persona))
        if request.plan:
            start_planning(tx, session.id)
        return session

    return await store.write(create)


def _complete_request(application: "TalariaApplication", request: OpenRequest, session: Session) -> OpenRequest:
    """Return the request with the folder and the context of its session.

    A session on a surface that does not stay open cannot be woken later.
    """
    context = structs.replace(
        request.surface.context,
        source=request.surface.source,
        session_id=session.id,
        async_delivery=request.surface.lasting and request.surface.context.async_delivery,
    )
    folder = make_working_folder(application.profile, request, session)
    return structs.replace(request, surface=structs.replace(request.surface, folder=folder, context=context))


def _make_questions(application: "TalariaApplication", request: OpenRequest, events: TurnEvents) -> Questions:
    """Return the questions of the session: its own, or those of the delegating session."""
    if request.delegated_scope is not None and request.delegated_scope.questions is not None:
        return request.delegated_scope.questions
    surface, live = request.surface, application.settings_admin
    return Questions(events.publish, patience=lambda: live.current.approval.timeout_seconds if surface.attended else 0)


def _enter_workspace(
    application: "TalariaApplication", request: OpenRequest, session: Session, stack: AsyncExitStack, stored: str
) -> OpenWorkspace:
    """Return the session's workspace: the one open in this process, or as ``stored``."""
    workspace = LocalWorkspace(request.surface.folder, application.given)
    if stored:
        workspace.restore(stored)
    if session.owner and not workspace.folder.is_relative_to(request.surface.folder):
        workspace.move_to(request.surface.folder)
    workplace = application.workspaces.enter(session.id, workspace, request.surface.context)
    stack.callback(application.workspaces.leave, session.id)
    return workplace


def _build_tool_context(
    application: "TalariaApplication",
    request: OpenRequest,
    session: Session,
    settings: Settings,
    models: _SessionModels,
    workplace: OpenWorkspace,
    stack: AsyncExitStack,
) -> ToolContext:
    return ToolContext(
        settings=settings,
        profile=application.profile,
        store=application.store,
        session_id=session.id,
        surface=request.surface.source,
        folder=request.surface.folder,
        began_in=None if session.owner else workplace.workspace.began_in,
        closing=stack,
        model=models.info,
        vision_model=models.vision,
        processes=workplace.open_processes,
        background=application.processes,
        guest=bool(session.owner),
        networks=application.networks(),
        viewer=resolve_viewer(request, session),
        file_limit=request.surface.file_limit,
        attaches_files=request.surface.attaches_files,
        delegated_scope=request.delegated_scope,
        find_secret=application.secrets.get,
        environment=application.given,
        browsers=application.browsers,
    )


def _make_agent(
    application: "TalariaApplication",
    tool_context: ToolContext,
    prefix: Prefix,
    toolbox: Toolbox,
    calls: ModelCalls,
    auxiliary: Auxiliary,
) -> AgentLoop:
    """Return the agent of a session; where several people share a chat, it sees who wrote what."""
    model = tool_context.settings.model
    options = ModelOptions(
        instructions=prefix.instructions,
        effort=model.effort,
        max_output_tokens=model.max_output_tokens or None,
        temperature=model.temperature,
    )
    history = StoredHistory(tool_context.store, tool_context.session_id)
    viewer = tool_context.viewer
    labelled = bool(viewer.audience) and viewer.owner == viewer.audience
    window = ContextWindow(tool_context.model, history, auxiliary, application.window_memory, labelled=labelled)
    return AgentLoop(calls, tool_context.model, toolbox, options, window)


def _make_approver(
    application: "TalariaApplication",
    tool_context: ToolContext,
    request: OpenRequest,
    questions: Questions,
    workspace: LocalWorkspace,
) -> StoredApprover:
    """Return the approver of tool calls, with the settings in force at each call.

    Grants belong to the session in which a person is asked. Tools passed in the request are granted.
    """
    scratch: set[str] = set()
    own_tools = [Grant(tool.name, tool.name, kind="irreversible") for tool in request.tools or ()]
    scope, profile, hooks = tool_context.delegated_scope, application.profile, application.hooks

    def build_policy() -> "ApprovalPolicy":
        from talaria.agent.approval.policy import ApprovalPolicy  # noqa: PLC0415 (loaded with the first tool call)

        follow_settings_file(application, request.surface.source)
        settings = application.settings
        return ApprovalPolicy(
            home=Path(application.environment.get("HOME", str(tool_context.folder))),
            mode=settings.approval.mode,
            allowed=(*map(parse_allow_entry, settings.approval.allowed), *own_tools),
            protected=(profile.folder, profile.guests_folder, find_home(application.environment) / "profiles"),
            scratch=scratch,
            readable=(*tool_context.output_folders, *([tool_context.folder] if tool_context.guest else [])),
            rules=_select_rules(settings, tool_context.surface) if settings.rules else (),
        )

    return StoredApprover(
        tool_context.store,
        scope.root if scope is not None else tool_context.session_id,
        build_approval_policy(tool_context, build_policy, lambda: application.settings),
        questions,
        workspace,
        veto=None if isinstance(hooks, NoHooks) else hooks.veto,
    )


def _build_environment(
    application: "TalariaApplication",
    tool_context: ToolContext,
    request: OpenRequest,
    events: TurnEvents,
    questions: Questions,
    workspace: LocalWorkspace,
    budget: Budget,
) -> TurnEnvironment:
    return TurnEnvironment(
        publish=events.publish,
        person=questions,
        approver=_make_approver(application, tool_context, request, questions, workspace),
        workspace=workspace,
        changes=cache(partial(_make_recorder, application, workspace, events)),
        limits=partial(_read_limits, application.settings_admin, request.delegated_scope),
        budget=budget,
        viewer=tool_context.viewer,
        mask=application.mask,
    )


def _open_media(application: "TalariaApplication", budget: Budget, session_id: SessionId) -> "SessionMedia":
    from talaria.app.media_models import SessionMedia  # noqa: PLC0415 (loaded with the first image or recording)

    return SessionMedia(application, budget, session_id)


def _make_recorder(application: "TalariaApplication", workspace: LocalWorkspace, events: TurnEvents) -> ChangeRecorder:
    from talaria.app.session.change_recorder import make_recorder  # noqa: PLC0415 (loaded with the first change)

    profile, environment, folder = application.profile, application.environment, workspace.began_in
    return make_recorder(
        application.settings_admin, profile, environment, folder, lambda: events.turn, application.mask
    )


def _select_rules(settings: Settings, surface: str) -> "tuple[ApprovalRule, ...]":
    """Return the rules of the settings for turns of the present person on a surface."""
    from talaria.agent.approval.policy import ApprovalRule  # noqa: PLC0415 (loaded with the first tool call)

    person = resolve_turn_person(settings)
    rules = (ApprovalRule(name=name, **structs.asdict(one)) for name, one in settings.rules.items())
    return tuple(rule for rule in rules if rule.is_for(surface, person))


def _read_limits(live: LiveSettings, delegated_scope: DelegatedScope | None) -> Limits:
    """Return the limits of one turn, by the settings in force now."""
    settings = live.current
    return Limits(
        iterations=settings.agent.max_iterations,
        tokens=settings.agent.max_turn_tokens or None,
        cost_microdollars=round(settings.budget.turn * _MICRODOLLARS) or None,
        seconds=delegated_scope.seconds if delegated_scope is not None else settings.agent.max_turn_seconds or None,
    )


def _build_budget(live: LiveSettings, store: Store, session: Session, request: OpenRequest) -> Budget:
    """Return the budget of a session, with the caps of its goals and of its ancestors.

    The caps are those of the settings in force at each model call.
    """
    sessions = (session.id, *(request.delegated_scope.ancestors if request.delegated_scope else ()))

    def read_caps(tx: Transaction) -> tuple[Cap, ...]:
        goals = [cap for one in sessions for cap in read_goal_caps(tx, one)]
        own = build_persona_caps(live.current, request.persona) if request.persona else ()
        return *build_caps(live.current.budget, session), *goals, *request.caps, *own

    return StoredBudget(store, read_caps)


async def _build_options(
    application: "TalariaApplication",
    tool_context: ToolContext,
    session: Session,
    request: OpenRequest,
    environment: TurnEnvironment,
    auxiliary: Auxiliary,
    workspace: LocalWorkspace,
) -> RunnerOptions:
    """Return the runner's options, with all turn listeners and follow-ups."""
    exports = await _open_exports(application.settings, tool_context, session)
    return RunnerOptions(
        unpack=request.turns.unpack,
        listeners=build_session_listeners(application, request, workspace, exports),
        follow_ups=(
            *request.turns.follow_ups,
            *_build_goal_follow_ups(tool_context, request, environment, auxiliary),
        ),
        context=request.surface.context,
        lease=timedelta(seconds=application.settings.gateway.lease_seconds),
        waits_for_store=request.turns.waits_for_store,
        queues_replies=request.turns.queues_replies,
        is_same_person=partial(is_same_person, lambda: application.settings),
        titled=request.titled and not session.title,
    )


def _build_goal_follow_ups(
    tool_context: ToolContext, request: OpenRequest, environment: TurnEnvironment, auxiliary: Auxiliary
) -> Sequence[TurnFollowUp]:
    """Return the follow-up that continues the goal, on a surface that stays open."""
    if not request.surface.lasting:
        return ()
    from talaria.app.session.goals import make_judge  # noqa: PLC0415 (not loaded for a one-shot question)
    from talaria.goals.follower import GoalFollower  # noqa: PLC0415 (not loaded for a one-shot question)

    judge, key = partial(make_judge, tool_context, environment, auxiliary), request.surface.context.session_key
    session_id, store = tool_context.session_id, tool_context.store
    return (GoalFollower(session_id, store=store, make_judge=judge, emit=environment.publish, key=key),)


def build_session_listeners(
    application: "TalariaApplication", request: OpenRequest, workspace: LocalWorkspace, exports: Sequence[TurnListener]
) -> tuple[TurnListener, ...]:
    """Return the turn listeners of a session: the one list of who is attached when.

    On a surface that stays open, completions are queued and a follow-up drives the goal; elsewhere the goal only
    records how turns end, and waits for such a surface.
    """
    return (
        *request.turns.listeners,
        _ToolListener(workspace, application.end_workspace),
        CompletionListener(request.surface.context.session_key) if request.surface.lasting else GoalRecorder(),
        *exports,
    )


class _ToolListener:
    """Turn listener for the traces of tools; implements `TurnListener`.

    Stores the folder and variables of the workspace after the first turn and after turns with tools, as nothing else
    changes them, and ends the delegated calls of the turn. ``end`` ends what a delegated session has started.
    """

    def __init__(self, workspace: LocalWorkspace, end: Callable[[SessionId], object]) -> None:
        self._workspace = workspace
        self._is_stored = False
        self._end = end

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> AfterCommit | None:
        """Store the workspace, and end delegated calls, in the transaction that ends the turn."""
        if self._is_stored and not ending.used_tools:
            return None
        WORKSPACE.write(tx, ending.session_id, self._workspace.snapshot())
        interrupted = end_open_calls(tx, ending.session_id) if ending.used_tools else ()
        return partial(self._end_interrupted, interrupted)

    def _end_interrupted(self, interrupted: Sequence[SessionId]) -> None:
        self._is_stored = True
        for session_id in interrupted:
            self._end(session_id)


async def _open_exports(settings: Settings, tool_context: ToolContext, session: Session) -> list[TurnListener]:
    """Return the listener that exports finished turns, if a collector is configured."""
    if not settings.telemetry.endpoint:
        return []
    from talaria.http_client.client import HttpPool  # noqa: PLC0415 (loaded when traces are exported)
    from talaria.observability.otlp_exporter import TurnExportListener, run_exporter  # noqa: PLC0415 (loaded when traces are exported)

    pool = HttpPool()
    tool_context.closing.push_async_callback(pool.close)
    exporter = await tool_context.closing.enter_async_context(
        run_exporter(settings.telemetry.endpoint, settings.telemetry.headers, pool.send)
    )
    return [TurnExportListener(session, exporter)]


def _make_trust_note(application: "TalariaApplication", request: OpenRequest) -> list[str]:
    """Return a notice if a project has untrusted files, which are ignored; a terminal chat asks instead."""
    notice = "" if request.surface.lasting else FolderTrust(application.profile.folder).notice(request.surface.folder)
    return [notice] if notice else []
