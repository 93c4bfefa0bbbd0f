"""Who may say that something dangerous happens: rules first, then what was allowed before, then a person."""

import asyncio
from collections.abc import Callable, Sequence

from talaria.agent.approval.grants import Grant, Scope, grants_for
from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask, Deny
from talaria.agent.surroundings import Verdict
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Deed, Effect, Workspace
from talaria.core.ids import SessionId
from talaria.sessions.questions import Questions
from talaria.sessions.standing_grants import ALWAYS, decode_grants, encode_grants


class SessionApprover:
    """Implements `Approver` for one conversation; what a person allowed is kept in the store.

    ``policy`` is asked for at each call: rules may depend on who has begun the turn.
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
        self._keys = {"session": f"grants:{session_id}", "always": ALWAYS}
        self._policy = policy
        self._questions = questions
        self._workspace = workspace

    async def decide(self, tool: str, effect: Effect, deed: Deed) -> tuple[Verdict, str]:
        """Return the verdict and why; where nobody answers in time it is ``deny``."""
        policy, grants = self._policy(), await self._grants()
        if deed.kind == "command":  # examining a long one, or the scripts it runs, would hold up every other chat
            judged = await asyncio.to_thread(policy.judge, tool, effect, deed, self._workspace, grants)
        else:
            judged = policy.judge(tool, effect, deed, self._workspace, grants)
        match judged:
            case Allow():
                return "allow", ""
            case Deny(reason):
                return "deny", reason
            case Ask() as ask:
                return await self._ask(tool, deed, ask)

    async def _ask(self, tool: str, deed: Deed, ask: Ask) -> tuple[Verdict, str]:
        diff = await asyncio.to_thread(deed.change.diff, self._workspace) if deed.change else ""
        answer = await self._questions.ask_approval(tool, deed.target, ask.reason, diff)
        match answer:
            case "once":
                return "allow", ""
            case "session" | "always":
                folder = str(self._workspace.folder)
                await self._remember(answer, grants_for(tool, deed, ask.dangers, folder=folder, scope=answer))
                return "allow", ""
            case None:
                return "deny", f"nobody was there to allow it. It was asked because: {ask.reason}."
            case "" | "no":
                return "deny", f"the user refused. It was asked because: {ask.reason}."
            case why:
                return "deny", f"the user refused: {why}"

    async def _grants(self) -> list[Grant]:
        entries = await self._store.read(lambda tx: [tx.state.get(key) for key in self._keys.values()])
        return [grant for entry in entries if entry for grant in decode_grants(entry.value)]

    async def _remember(self, scope: Scope, new: Sequence[Grant]) -> None:
        key = self._keys[scope]

        def add(tx: Transaction) -> None:
            entry = tx.state.get(key)
            kept = decode_grants(entry.value) if entry else []
            tx.state.put(key, encode_grants([*kept, *(grant for grant in new if grant not in kept)]).decode())

        await self._store.write(add)
