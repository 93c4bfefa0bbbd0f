"""Runs as clients send and receive them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.api.responses.wire import Input, Metadata
from talaria.api.runs.asked import Question
from talaria.contracts.stores.responses import ApiRunState
from talaria.core.messages import Usage


class RunRequest(Struct, frozen=True, kw_only=True):
    """What a run is to do.

    With a ``session_id`` it goes on with that conversation, behind what is being worked on there; else it begins one,
    for which ``instructions`` and items before the last one of ``input`` count.
    """

    input: Input
    session_id: Annotated[str, Meta(description="The conversation to go on with.")] = ""
    instructions: Annotated[str, Meta(description="What the agent is told beside its own instructions.")] = ""
    model: Annotated[str, Meta(description="Another model than the usual one, as `provider:model`.")] = ""
    metadata: Metadata = {}


class RunProblem(Struct, frozen=True):
    """Why a run failed."""

    code: str
    message: str


class Run(Struct, frozen=True, kw_only=True):
    """A run; ``output`` is its answer once it is over, ``questions`` are what it waits for somebody to answer."""

    id: str
    session_id: str
    status: ApiRunState
    created_at: int
    updated_at: int
    object: Literal["run"] = "run"
    output: str | None = None
    error: RunProblem | None = None
    usage: Usage | None = None
    questions: tuple[Question, ...] = ()
    metadata: Metadata = {}


class EventsQuery(Struct, frozen=True):
    """From where on to follow a run: behind this number."""

    after: Annotated[int, Meta(ge=0, le=2**62)] = 0


class Decision(Struct, frozen=True):
    """What somebody says to something that a run asks.

    For an approval ``decision`` is the answer, and ``reason`` tells the agent why not; for a question it is ``answer``.
    """

    id: str
    decision: Literal["approve", "approve_session", "approve_always", "deny"] | None = None
    answer: str | None = None
    reason: str = ""
