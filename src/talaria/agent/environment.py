"""Dependencies of the turn loop: event sink, approver, workspace, limits, budget, and control by the runner."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.provider import ModelInfo
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.stores.turns import Hold
from talaria.contracts.tool import ChangeRecorder, Effect, ProposedAction, Questioner, Workspace
from talaria.core.events import TurnEvent
from talaria.core.messages import Message
from talaria.core.session_context import SessionContext


class Budget(Protocol):
    """The caps on a turn: in total, per person, session, goal or job."""

    def has_caps(self, tx: Transaction) -> bool:
        """Return whether any cap applies now."""

    async def reserve(self, amount: int, model: ModelInfo) -> Hold | None:
        """Reserve an amount, in millionths of a dollar, for a call of a model, or raise `OverBudget`.

        Raises `PriceUnknown` if there is a cap and the model has no price.
        """

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Replace a hold by the amount actually spent."""


class UnlimitedBudget:
    """Implementation of `Budget` without caps."""

    def has_caps(self, tx: Transaction) -> bool:
        """Return ``False``."""
        return False

    async def reserve(self, amount: int, model: ModelInfo) -> Hold | None:
        """Reserve nothing."""
        return None

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Record nothing."""


Verdict = Literal["allow", "deny"]


class Approver(Protocol):
    """Decides whether a call may run: by its own rules, or by asking a person."""

    async def decide(self, tool: str, effect: Effect, proposed_action: ProposedAction) -> tuple[Verdict, str]:
        """Return the verdict and its reason; without an answer in time it is ``deny``."""


async def no_joined_messages() -> list[Message]:
    """Return no messages: nobody can write to the turn while it runs."""
    return []


class Limits(Struct, frozen=True):
    """The limits of a turn; ``None`` is no limit. Money is in millionths of a dollar."""

    iterations: int = 60
    tokens: int | None = None
    cost_microdollars: int | None = None
    seconds: float | None = None


class NoChangeRecorder:
    """Implementation of `ChangeRecorder` that records nothing."""

    @asynccontextmanager
    async def around(
        self, effect: Effect, proposed_action: ProposedAction, workspace: Workspace, context: SessionContext
    ) -> AsyncIterator[str]:
        """Record nothing."""
        yield ""


class TurnEnvironment(Struct, frozen=True, kw_only=True):
    """The environment that every turn of a session gets; made once when the session is opened.

    ``publish`` takes the events of the turn, ``person`` answers questions, ``workspace`` is where tools run.
    ``changes`` returns the recorder of changes to files, ``limits`` the limits of the next turn. ``viewer`` is the
    person and the audience for whom tools look things up. ``mask`` removes secrets from texts of tools.
    """

    publish: Callable[[TurnEvent], None]
    person: Questioner
    approver: Approver
    workspace: Workspace
    changes: Callable[[], ChangeRecorder] = NoChangeRecorder
    limits: Callable[[], Limits] = Limits
    budget: Budget = UnlimitedBudget()
    viewer: Viewer = Viewer()
    mask: Callable[[str], str] = str


class TurnControl(Struct, frozen=True, kw_only=True):
    """Access of one turn to its runner.

    ``joined`` returns messages that were sent to the running turn, each once; they are stored already. ``stopped`` says
    whether a person stopped the turn, so that it is over. If not, a cancelled turn continues later. ``context`` is the
    session context bound while the turn runs.
    """

    joined: Callable[[], Awaitable[list[Message]]] = no_joined_messages
    stopped: Callable[[], bool] = bool
    context: SessionContext = SessionContext()
