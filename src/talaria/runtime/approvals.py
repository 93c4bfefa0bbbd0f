"""Approval of tool calls: policy rules first, then stored grants, then a person."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import msgspec

from talaria.agent.approval.grants import Grant, Scope, make_grants
from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask, Deny
from talaria.agent.environment import Verdict
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Effect, ProposedAction, Workspace
from talaria.contracts.values import SINGLE, NamedValue, SessionValue
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.runtime.questions import Questions

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


def revoke_standing_grant(tx: Transaction, id_prefix: str) -> list[Grant]:
    """Revoke the grant whose id starts with ``id_prefix``, or all grants if it is empty.

    Returns the revoked grants. Raises `NotFound` unless exactly one id matches a prefix.
    """
    grants = list_standing_grants(tx)
    revoked = [grant for grant in grants if grant_id(grant).startswith(id_prefix.lower())]
    if id_prefix and len(revoked) != 1:
        raise NotFound(f"No single approval matches `{id_prefix}`. `talaria approvals list` shows them.")
    STANDING_GRANTS.write(tx, SINGLE, [grant for grant in grants if grant not in revoked])
    return revoked


class StoredApprover:
    """Implementation of `Approver` for one session, with grants saved in the store.

    ``policy`` is called for each decision, because the rules may depend on the person who started the turn.
    """

    def __init__(
        self,
        store: Store,
        session_id: SessionId,
        policy: Callable[[], ApprovalPolicy],
        questions: Questions,
        workspace: Workspace,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._policy = policy
        self._questions = questions
        self._workspace = workspace

    async def decide(self, tool: str, effect: Effect, proposed_action: ProposedAction) -> tuple[Verdict, str]:
        """Return the verdict and its reason; without an answer in time the verdict is ``deny``."""
        policy, grants = self._policy(), await self._load_grants()
        if (
            proposed_action.kind == "command"
        ):  # analysing a long command, or the scripts it runs, would block other chats
            judgement = await asyncio.to_thread(policy.judge, tool, effect, proposed_action, self._workspace, grants)
        else:
            judgement = policy.judge(tool, effect, proposed_action, self._workspace, grants)
        match judgement:
            case Allow():
                return "allow", ""
            case Deny(reason):
                return "deny", reason
            case Ask() as ask:
                return await self._ask(tool, proposed_action, ask)

    async def _ask(self, tool: str, proposed_action: ProposedAction, ask: Ask) -> tuple[Verdict, str]:
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

    async def _load_grants(self) -> list[Grant]:
        return await self._store.read(
            lambda tx: [*(SESSION_GRANTS.get(tx, self._session_id) or []), *list_standing_grants(tx)]
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
