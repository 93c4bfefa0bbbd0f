"""Questions and approvals: ask the person in a session, and decide about tool calls."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from talaria.agent.approval.grants import Grant, Scope, make_grants
from talaria.agent.environment import Verdict
from talaria.contracts.hooks import Facts, session_facts
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Effect, ProposedAction, Workspace
from talaria.contracts.values import SINGLE, NamedValue, SessionValue
from talaria.core.errors import NotFound, StoreError
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEnd, TurnEvent
from talaria.core.formatting import escape_harmful
from talaria.core.ids import SessionId, new_id
from talaria.core.session_context import SessionContext, current_context

if TYPE_CHECKING:  # loaded with the first tool call
    from talaria.agent.approval.policy import ApprovalPolicy, Ask
    from talaria.sessions.preferences import PlanMode

_APPROVALS = (
    ("once", "Yes, this once"),
    ("session", "Yes, for this conversation"),
    ("always", "Yes, always"),
    ("no", "No"),
)
_PLAN_ANSWERS = (("once", "Carry out the plan"), ("no", "Keep planning"))
_REFUSAL = "no"
_APPROVING = frozenset(answer for answer, _ in _APPROVALS) - {_REFUSAL}
OTHER_CHOICE = "Something else (type it)"
_TERMINAL_TOOL = "terminal"
PLAN = "the plan"  # in place of a tool, in the question about a plan
_MAX_DIFF = 1_500  # characters of a change in a chat message
_MARKDOWN_CHARACTERS = re.compile(r"([\\`*_{}\[\]<>#|~!])")


class Prompter(Protocol):
    """A surface on which a person can be asked."""

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Offer choices and return the index of the chosen one; ``None`` if the person makes no choice."""

    async def ask(self, question: str) -> str:
        """Return the answer that the person types."""


class AnswerReceiver(Protocol):
    """Receiver of answers to the questions of a turn, which may run in another process."""

    def answer(self, question_id: str, text: str) -> bool:
        """Answer a question; ``False`` if it is known to be closed."""

    async def wait_until_closed(self, question_id: str) -> None:
        """Wait until a question is closed."""


async def answer(
    event: ApprovalAsked | QuestionAsked, questions: AnswerReceiver, prompter: Prompter, *, markdown: bool = False
) -> None:
    """Ask the person, unless the question is closed first; ``markdown`` if the surface renders it."""
    if isinstance(event, ApprovalAsked):
        await answer_with(event.id, questions, _ask_approval(event, prompter, markdown=markdown))
    else:
        await answer_with(event.id, questions, ask_question(event, prompter))


async def answer_with(question_id: str, questions: AnswerReceiver, prompt: Coroutine[Any, Any, str]) -> None:
    """Answer a question with the result of ``prompt``, which is cancelled if the question closes first."""
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(prompt)
        closing = group.create_task(questions.wait_until_closed(question_id))
        await asyncio.wait([asked, closing], return_when=asyncio.FIRST_COMPLETED)
        if asked.done() and not asked.cancelled():
            questions.answer(question_id, asked.result())
        asked.cancel()
        closing.cancel()


def format_approval_question(event: ApprovalAsked, *, markdown: bool = False) -> str:
    """Return the question with the exact command or action.

    Where Markdown is rendered, the action is put in a code block, so that nothing of it is hidden or changed, and
    characters that reverse or hide text are shown as escapes.
    """
    lead = {_TERMINAL_TOOL: "Run this command?", PLAN: "Carry out the plan?"}.get(event.tool, f"Allow {event.tool}?")
    if not markdown:
        return f"{lead}\n{event.summary}\n{event.reason}"
    from talaria.sessions.transcript_export import format_code_block  # noqa: PLC0415 (loaded with the first question)

    reason = re.sub(_MARKDOWN_CHARACTERS, r"\\\1", escape_harmful(event.reason))
    change = f"{format_code_block(_shorten_diff(escape_harmful(event.diff)))}\n\n" if event.diff else ""
    return f"{lead}\n\n{format_code_block(escape_harmful(event.summary))}\n\n{change}{reason}"


def _shorten_diff(diff: str) -> str:
    """Return the start of a diff, so that the question fits into one chat message."""
    lines = diff.splitlines()
    shown: list[str] = []
    room = _MAX_DIFF
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return "\n".join((*shown, f"… {len(lines) - len(shown):,} more lines"))
        shown.append(line)
    return "\n".join(shown)


async def _ask_approval(event: ApprovalAsked, prompter: Prompter, *, markdown: bool) -> str:
    answers = _PLAN_ANSWERS if event.tool == PLAN else _APPROVALS
    chosen = await prompter.choose(format_approval_question(event, markdown=markdown), [label for _, label in answers])
    return _REFUSAL if chosen is None else answers[chosen][0]


def format_refusal(reason: str) -> str:
    """Return the answer that refuses an approval, with a reason if there is one; no reason reads like a yes."""
    if not reason.strip():
        return _REFUSAL
    return f"“{reason}”" if reason in _APPROVING else reason


async def ask_question(event: QuestionAsked, prompter: Prompter) -> str:
    """Return the person's answer to a question of the agent."""
    if event.choices:
        chosen = await prompter.choose(event.question, [*event.choices, OTHER_CHOICE])
        if chosen is None:
            return ""
        if chosen < len(event.choices):
            return event.choices[chosen]
    return await prompter.ask(event.question)


_ANSWER_TIMEOUT = 300.0
AskedEvent = ApprovalAsked | QuestionAsked


class OpenQuestions(Protocol):
    """Questions asked by a turn in this or another process."""

    @property
    def approvals(self) -> list[ApprovalAsked]:
        """Unanswered approval requests, oldest first."""

    def answer(self, question_id: str, text: str) -> bool:
        """Answer an open question; ``False`` if it is already closed."""


class _OpenQuestion(Struct, frozen=True):
    asked: AskedEvent
    answer: asyncio.Future[str]


class Questions:
    """Open questions of one session; implementation of `Questioner`.

    ``patience`` returns how many seconds to wait for an answer.
    """

    def __init__(
        self, emit: Callable[[TurnEvent], None], *, patience: Callable[[], float] = lambda: _ANSWER_TIMEOUT
    ) -> None:
        self._emit = emit
        self._patience = patience
        self._open: dict[str, _OpenQuestion] = {}

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer, or ``None`` on timeout."""
        return await self._publish_and_wait(lambda number: QuestionAsked(number, question, choices))

    async def ask_approval(self, tool: str, summary: str, reason: str, diff: str = "") -> str | None:
        """Return ``once``, ``session``, ``always``, a reason for refusal, or ``None`` on timeout."""
        return await self._publish_and_wait(lambda number: ApprovalAsked(number, tool, summary, reason, diff))

    def answer(self, question_id: str, text: str) -> bool:
        """Answer an open question; ``False`` if it is already closed."""
        found = self._open.get(question_id)
        if found is None or found.answer.done():
            return False
        found.answer.set_result(text)
        return True

    async def wait_until_closed(self, question_id: str) -> None:
        """Wait until a question is closed: answered, timed out, or ended with its turn."""
        found = self._open.get(question_id)
        if found is not None:
            await asyncio.wait([found.answer])

    @property
    def waiting(self) -> list[str]:
        """The ids of the open questions, oldest first."""
        return list(self._open)

    @property
    def approvals(self) -> list[ApprovalAsked]:
        """Unanswered approval requests, oldest first."""
        unanswered = [one.asked for one in self._open.values() if not one.answer.done()]
        return [asked for asked in unanswered if isinstance(asked, ApprovalAsked)]

    async def _publish_and_wait(self, asked: Callable[[str], AskedEvent]) -> str | None:
        number = new_id()
        question = _OpenQuestion(asked(number), asyncio.get_running_loop().create_future())
        self._open[number] = question
        try:
            self._emit(question.asked)
            async with asyncio.timeout(self._patience()):
                return await question.answer
        except TimeoutError:
            return None
        finally:
            del self._open[number]


class DelegatedQuestions(Questions):
    """Questions of a delegated task, asked through ``parent`` with the prefix ``child_name``."""

    def __init__(self, parent: Questions, child_name: str) -> None:
        super().__init__(lambda event: None)
        self._parent = parent
        self._child_name = child_name

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer given through the parent, or ``None`` on timeout."""
        return await self._parent.ask(f"{self._child_name}: {question}", choices)

    async def ask_approval(self, tool: str, summary: str, reason: str, diff: str = "") -> str | None:
        """Return the decision given through the parent, or ``None`` on timeout."""
        return await self._parent.ask_approval(tool, f"{self._child_name}: {summary}", reason, diff)


SESSION_GRANTS = SessionValue("grants", list[Grant])
STANDING_GRANTS = NamedValue("standing_grants", list[Grant])
_ID_LENGTH = 8
encode_grants = msgspec.json.Encoder().encode


def grant_id(grant: Grant) -> str:
    """Return the short id with which a person revokes a grant."""
    return hashlib.sha256(encode_grants(grant)).hexdigest()[:_ID_LENGTH]


def list_standing_grants(tx: Transaction) -> list[Grant]:
    """Return the grants that apply to every session, oldest first."""
    return STANDING_GRANTS.get(tx, SINGLE) or []


def list_session_grants(tx: Transaction) -> list[tuple[SessionId, Grant]]:
    """Return the grants that apply to one session each, with that session."""
    return [(session_id, grant) for session_id, _, grants in SESSION_GRANTS.of_all(tx) for grant in grants]


def revoke_grants(tx: Transaction, id_prefix: str) -> list[Grant]:
    """Revoke the grants whose id starts with ``id_prefix``, or all grants if it is empty, in every session.

    Returns the revoked grants. Raises `NotFound` unless exactly one id matches a prefix.
    """

    def is_meant(grant: Grant) -> bool:
        return grant_id(grant).startswith(id_prefix.lower())

    standing = list_standing_grants(tx)
    in_sessions = [(session_id, grants) for session_id, _, grants in SESSION_GRANTS.of_all(tx)]
    every = [*standing, *(grant for _, grants in in_sessions for grant in grants)]
    revoked = list(dict.fromkeys(filter(is_meant, every)))
    if id_prefix and len(revoked) != 1:
        raise NotFound(
            f"No single approval matches `{id_prefix}`. `talaria approvals list` and `/approvals` show them."
        )
    STANDING_GRANTS.write(tx, SINGLE, [grant for grant in standing if not is_meant(grant)])
    for session_id, grants in in_sessions:
        SESSION_GRANTS.write(tx, session_id, [grant for grant in grants if not is_meant(grant)])
    return revoked


class StoredApprover:
    """Implementation of `Approver` for one session, with grants saved in the store.

    ``policy`` is called for each decision, because the rules may depend on the person who started the turn. ``veto``
    returns why a hook refuses a call.
    """

    def __init__(
        self,
        store: Store,
        session_id: SessionId,
        policy: "Callable[[], ApprovalPolicy]",
        questions: Questions,
        workspace: Workspace,
        *,
        veto: Callable[[Facts], Awaitable[str]] | None = None,
    ) -> None:
        self._veto = veto
        self._store = store
        self._session_id = session_id
        self._policy = policy
        self._questions = questions
        self._workspace = workspace

    async def decide(self, tool: str, effect: Effect, proposed_action: ProposedAction) -> tuple[Verdict, str]:
        """Return the verdict and its reason; without an answer in time the verdict is ``deny``."""
        from talaria.agent.approval.policy import Allow, Ask, Deny  # noqa: PLC0415 (loaded with the first tool call)

        policy, (grants, plan) = self._policy(), await self._load_state()
        if (
            proposed_action.kind == "command"
        ):  # analysing a long command, or the scripts it runs, would block other chats
            judgement = await asyncio.to_thread(policy.judge, tool, effect, proposed_action, self._workspace, grants)
        else:
            judgement = policy.judge(tool, effect, proposed_action, self._workspace, grants)
        match judgement:
            case Deny(reason):
                return "deny", reason
            case _ if reason := await self._find_veto(tool, effect, proposed_action):
                return "deny", reason
            case _ if plan.is_on and (reason := await self._ask_plan(policy, plan, tool, effect, proposed_action)):
                return "deny", reason
            case Allow():
                return "allow", ""
            case Ask() as ask:
                return await self._ask(tool, proposed_action, ask)

    async def _ask_plan(
        self, policy: "ApprovalPolicy", plan: "PlanMode", tool: str, effect: Effect, proposed_action: ProposedAction
    ) -> str:
        """Return why a call must wait for approval of the plan; empty if it need not.

        The first call that would change something gets the instructions of plan mode; later ones ask the person.
        """
        if await asyncio.to_thread(policy.only_reads, tool, effect, proposed_action, self._workspace):
            return ""
        from talaria.sessions.preferences import PLAN_INSTRUCTIONS, start_planning, stop_planning  # noqa: PLC0415 (loaded for plan mode)

        if not plan.announced:
            await self._store.write(lambda tx: start_planning(tx, self._session_id, announced=True))
            return PLAN_INSTRUCTIONS
        first_step = f"First step: {tool}: {proposed_action.target}"
        answer = await self._questions.ask_approval(PLAN, first_step, "The agent wants to carry out its plan.")
        if answer in _APPROVING:
            await self._store.write(lambda tx: stop_planning(tx, self._session_id))
            return ""
        why = "nobody was there to approve it" if answer is None else "the user didn't approve it"
        if answer not in (None, "", _REFUSAL):
            why = f"the user wants changes: {answer}"
        return (
            f"the plan isn't approved yet: {why}. Only reading is allowed; improve the plan, or end your turn with it."
        )

    async def _find_veto(self, tool: str, effect: Effect, proposed_action: ProposedAction) -> str:
        """Return why a hook refuses the call; it gets the whole command, however long."""
        if self._veto is None:
            return ""
        facts = session_facts(current_context() or SessionContext())
        call = {"tool": tool, "kind": proposed_action.kind, "target": proposed_action.target, "effect": effect.value}
        return await self._veto({**facts, **call})

    async def _ask(self, tool: str, proposed_action: ProposedAction, ask: "Ask") -> tuple[Verdict, str]:
        diff = await asyncio.to_thread(proposed_action.change.diff, self._workspace) if proposed_action.change else ""
        answer = await self._questions.ask_approval(tool, proposed_action.target, ask.reason, diff)
        match answer:
            case "once":
                return "allow", ""
            case "session" | "always":
                folder = str(self._workspace.folder)
                await self._save_grants(
                    answer, make_grants(tool, proposed_action, ask.dangers, folder=folder, scope=answer)
                )
                return "allow", ""
            case None:
                return "deny", f"nobody was there to approve it. It needs approval because it {ask.reason}."
            case "" | "no":
                return "deny", f"the user refused. It needs approval because it {ask.reason}."
            case why:
                return "deny", f"the user refused: {why}"

    async def _load_state(self) -> "tuple[list[Grant], PlanMode]":
        """Return the grants that apply here, and the state of plan mode."""
        from talaria.sessions.preferences import read_plan_mode  # noqa: PLC0415 (loaded with the first tool call)

        return await self._store.read(
            lambda tx: (
                [*(SESSION_GRANTS.get(tx, self._session_id) or []), *list_standing_grants(tx)],
                read_plan_mode(tx, self._session_id),
            )
        )

    async def _save_grants(self, scope: Scope, new: Sequence[Grant]) -> None:
        def add(tx: Transaction) -> None:
            if scope == "session":
                stored = SESSION_GRANTS.get(tx, self._session_id) or []
                SESSION_GRANTS.write(tx, self._session_id, _add_new(stored, new))
            else:
                STANDING_GRANTS.write(tx, SINGLE, _add_new(list_standing_grants(tx), new))

        await self._store.write(add)


def _add_new(stored: Sequence[Grant], new: Sequence[Grant]) -> list[Grant]:
    return [*stored, *(grant for grant in new if grant not in stored)]


log = logging.getLogger(__name__)
QUESTIONS = "questions"  # topic notified when a question is asked or closed
_OUTSIDE_LIFE = timedelta(minutes=10)  # of a question outside of turns, whose process may be gone


class OpenQuestion(Struct, frozen=True):
    """A question that waits for an answer; ``turn_id`` is empty if it was asked outside of turns."""

    asked: AskedEvent
    turn_id: str
    at: datetime


OPEN_QUESTION = SessionValue("open_question", OpenQuestion)  # by the id of the question


def index_questions(
    store: Store,
    session_id: SessionId,
    questions: Questions,
    subscribe: Callable[[Callable[[TurnEvent], None]], object],
    jobs: asyncio.TaskGroup,
) -> None:
    """Store each question of a session as long as it is open."""
    running_turn = ""

    async def follow(event: AskedEvent, turn_id: str) -> None:
        question = OpenQuestion(event, turn_id, datetime.now(UTC))
        try:
            await store.write(lambda tx: _add(tx, session_id, question))
            await questions.wait_until_closed(event.id)
        except StoreError as error:
            log.info("session %s: a question isn't listed: %s", session_id, error)
        finally:
            await asyncio.shield(_close(store, session_id, event.id))

    def on_event(event: TurnEvent) -> None:
        nonlocal running_turn
        if isinstance(event, TurnBegan):
            running_turn = event.turn_id
        elif isinstance(event, TurnEnd):
            running_turn = ""
        elif isinstance(event, AskedEvent):
            following = follow(event, running_turn)
            try:
                jobs.create_task(following)
            except RuntimeError:  # the session is being closed
                following.close()

    subscribe(on_event)


def list_open_questions(tx: Transaction) -> list[tuple[SessionId, OpenQuestion]]:
    """Return the open questions of all sessions, oldest first; those of a process that is gone are left out."""
    found = OPEN_QUESTION.of_all(tx)
    running = {turn.id for turn in tx.turns.find(running=True)} if found else set()
    now = datetime.now(UTC)
    is_open = [
        (session_id, question)
        for session_id, _, question in found
        if (question.turn_id in running if question.turn_id else now - question.at < _OUTSIDE_LIFE)
    ]
    return sorted(is_open, key=lambda one: one[1].at)


def _add(tx: Transaction, session_id: SessionId, question: OpenQuestion) -> None:
    """Store a question; those that an earlier turn has left are removed."""
    if tx.sessions.get(session_id) is None:
        return
    for item, stored in OPEN_QUESTION.items(tx, session_id).items():
        if stored.turn_id != question.turn_id:
            OPEN_QUESTION.delete(tx, session_id, item)
    OPEN_QUESTION.write(tx, session_id, question, question.asked.id)
    tx.notify(QUESTIONS)


async def _close(store: Store, session_id: SessionId, question_id: str) -> None:
    def delete(tx: Transaction) -> None:
        if OPEN_QUESTION.delete(tx, session_id, question_id):
            tx.notify(QUESTIONS)

    try:
        await store.write(delete)
    except StoreError as error:
        log.debug("session %s: a closed question stays listed: %s", session_id, error)
