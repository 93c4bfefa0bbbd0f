"""The status bar: model, context, cost, title, goal, and whether a gateway is alive."""

from msgspec import Struct
from prompt_toolkit.formatted_text import StyleAndTextTuples

from talaria.cli.cells import cell, columns, cut
from talaria.commands.compress import context_estimate
from talaria.commands.status import counted_context
from talaria.contracts.models import ModelInfo
from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.core.wording import money
from talaria.goals.status import goal_mark
from talaria.sessions.lane import MIRROR

_FULL = 80
_GATEWAY = "gateway"
_EMBEDDED = "embedded"


class Situation(Struct, frozen=True, kw_only=True):
    """What the status bar tells."""

    session_id: SessionId | None = None
    model: str = ""
    title: str = ""
    context: int = 0
    exact: bool = True
    context_limit: int = 0
    cost_microdollars: int = 0
    priced: bool = True
    messages: int = 0
    goal: str = ""
    gateway: bool = False
    waiting: int = 0

    @property
    def context_percent(self) -> int:
        """How much of the context is used."""
        return round(100 * self.context / self.context_limit) if self.context_limit else 0

    @property
    def cost(self) -> str:
        """What the conversation has cost, as far as that is known."""
        cost = money(self.cost_microdollars) or "$0.00"
        if self.priced:
            return cost
        return f"over {cost}" if self.cost_microdollars else "cost unknown"


def has_price(model: ModelInfo, provider: str) -> bool:
    """Tell whether it is known what a model costs; the embedded one costs nothing."""
    return provider == _EMBEDDED or bool(model.input_price or model.output_price)


def read_situation(tx: Transaction, session_id: SessionId, before: Situation) -> Situation:
    """Return what the store knows of it; the model is known by whoever opened the conversation.

    An estimate of how full the context is, is not made again while nothing was said since ``before``.
    """
    session = tx.sessions.get(session_id)
    unsettled = tx.inbox.unsettled(session_id)
    waiting = [item for item in unsettled if item.state == "waiting" and item.kind != MIRROR]
    messages = session.message_count if session else 0
    counted = counted_context(tx, session_id)
    is_estimated = (before.session_id, before.messages, before.exact) == (session_id, messages, False)
    return Situation(
        session_id=session_id,
        context=counted or (before.context if is_estimated else context_estimate(tx, session_id)),
        exact=bool(counted),
        messages=messages,
        title=session.title if session else "",
        cost_microdollars=session.usage.cost_microdollars if session else 0,
        goal=goal_mark(tx, session_id),
        gateway=tx.leases.get(_GATEWAY) is not None,
        waiting=len(waiting),
    )


def status_line(situation: Situation, width: int) -> StyleAndTextTuples:
    """Return the status bar; what does not fit is left out from the end, the title is cut first."""
    percent = situation.context_percent
    parts = [
        ("class:status", cell(situation.model)),
        ("class:status.warning" if percent >= _FULL else "class:status", f"{percent} % of {_short(situation)}"),
        ("class:status", situation.cost),
        ("class:status", cell(situation.goal)),
        ("class:status", f"{situation.waiting} waiting" if situation.waiting else ""),
        ("class:status", "gateway on" if situation.gateway else "gateway off"),
    ]
    shown = [part for part in parts if part[1]]
    room = width - 2 - sum(columns(text) + 3 for _, text in shown)
    title = cut(cell(situation.title), room) if room > len("title") and situation.title else ""
    line: StyleAndTextTuples = [("", "  ")]
    for place, part in enumerate([*shown, *([("class:status.title", title)] if title else [])]):
        line += [("class:status", " · " if place else ""), part]
    return line


def _short(situation: Situation) -> str:
    limit = situation.context_limit
    return f"{limit // 1000}k" if limit >= 1000 else str(limit)
