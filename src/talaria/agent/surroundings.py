"""What a turn needs of the place where it happens."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from msgspec import Struct

from talaria.agent.budget import Budget, Unlimited
from talaria.contracts.tool import Deed, Effect, Person, Workspace
from talaria.core.events import TurnEvent
from talaria.core.messages import Message
from talaria.core.session_context import SessionContext

Verdict = Literal["allow", "deny"]


class Approver(Protocol):
    """Decides whether a call may run: by its own rules, or by asking whoever may say so."""

    async def decide(self, tool: str, effect: Effect, deed: Deed) -> tuple[Verdict, str]:
        """Return the verdict and why; where nobody answers in time it is ``deny``."""


async def nobody_joined() -> list[Message]:
    """Return nothing: nobody can write to the turn while it runs."""
    return []


class Surroundings(Struct, frozen=True, kw_only=True):
    """The place of one turn: who watches, who answers, where its tools work.

    ``joined`` hands out what a person wrote meanwhile, saved already, each message once; ``stopped`` tells whether a
    cancellation was a person's wish, so that the turn is over, or the program's, so that it goes on later.
    Whatever tools say, and whatever is said of them, passes through ``mask``, which takes secrets out.
    """

    emit: Callable[[TurnEvent], None]
    person: Person
    approver: Approver
    workspace: Workspace
    owner: str = ""
    audience: str = ""
    mask: Callable[[str], str] = str
    budget: Budget = Unlimited()
    joined: Callable[[], Awaitable[list[Message]]] = nobody_joined
    stopped: Callable[[], bool] = bool
    context: SessionContext = SessionContext()


class Limits(Struct, frozen=True):
    """Where a turn ends at the latest; ``None`` is no limit. Money is in millionths of a dollar."""

    iterations: int = 60
    tokens: int | None = None
    cost_microdollars: int | None = None
    seconds: float | None = None
