"""Wire types of runs."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.api.files import ApiFile
from talaria.api.input_items import Input, Metadata
from talaria.api.runs.events import RunQuestion
from talaria.contracts.stores.responses import ApiRunState
from talaria.core.messages import Usage


class RunRequest(Struct, frozen=True, kw_only=True):
    """A run to start.

    With a ``session_id`` it continues that session, after the work in progress there; otherwise it starts one, with
    ``instructions`` and the items before the last one of ``input`` as its history.
    """

    input: Input
    session_id: Annotated[str, Meta(description="The session to continue.")] = ""
    instructions: Annotated[str, Meta(description="Extra instructions for the agent.")] = ""
    model: Annotated[str, Meta(description="A different model, as `provider:model`.")] = ""
    metadata: Metadata = {}


class RunProblem(Struct, frozen=True):
    """The error of a failed run."""

    code: str
    message: str


class Run(Struct, frozen=True, kw_only=True):
    """A run; ``output`` is its answer once it is over, ``questions`` are those waiting for an answer.

    ``files`` are those that the agent has sent, once a turn is over.
    """

    id: str
    session_id: str
    status: ApiRunState
    created_at: int
    updated_at: int
    object: Literal["run"] = "run"
    output: str | None = None
    error: RunProblem | None = None
    usage: Usage | None = None
    questions: tuple[RunQuestion, ...] = ()
    files: tuple[ApiFile, ...] = ()
    metadata: Metadata = {}


class EventsQuery(Struct, frozen=True):
    """Start of following a run: after this number."""

    after: Annotated[int, Meta(ge=0, le=2**62)] = 0


class RunDecision(Struct, frozen=True):
    """The answer to a question of a run.

    For an approval, ``decision`` is the answer and ``reason`` tells the agent why it was denied; for a question, use
    ``answer``.
    """

    id: str
    decision: Literal["approve", "approve_session", "approve_always", "deny"] | None = None
    answer: str | None = None
    reason: str = ""
