"""Status bar (model, context, cost, title, goal, gateway) and terminal themes."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from prompt_toolkit.formatted_text import StyleAndTextTuples

from talaria.cli.terminal_text import cut, display_width, format_cell
from talaria.commands.status import get_counted_tokens
from talaria.commands.turn_control import estimate_context_tokens
from talaria.contracts.store import Transaction
from talaria.core.formatting import format_money
from talaria.core.ids import SessionId
from talaria.goals.goal_store import format_goal_badge
from talaria.runtime.turns import MIRROR

_WARNING_PERCENT = 80
_GATEWAY = "gateway"


class StatusInfo(Struct, frozen=True, kw_only=True):
    """Data of the status bar."""

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
        """Used part of the context, in percent."""
        return round(100 * self.context / self.context_limit) if self.context_limit else 0

    @property
    def cost(self) -> str:
        """Cost of the session, as far as known."""
        cost = format_money(self.cost_microdollars) or "$0.00"
        if self.priced:
            return cost
        return f"over {cost}" if self.cost_microdollars else "cost unknown"


def read_status(tx: Transaction, session_id: SessionId, previous: StatusInfo) -> StatusInfo:
    """Return the stored data of the status bar; the caller knows the model.

    The estimate of the context is reused from ``previous`` while there are no new messages.
    """
    session = tx.sessions.get(session_id)
    unsettled = tx.inbox.list_unsettled(session_id)
    waiting = [item for item in unsettled if item.state == "waiting" and item.kind != MIRROR]
    messages = session.message_count if session else 0
    counted = get_counted_tokens(tx, session_id)
    is_estimated = (previous.session_id, previous.messages, previous.exact) == (session_id, messages, False)
    return StatusInfo(
        session_id=session_id,
        context=counted or (previous.context if is_estimated else estimate_context_tokens(tx, session_id)),
        exact=bool(counted),
        messages=messages,
        title=session.title if session else "",
        cost_microdollars=session.usage.cost_microdollars if session else 0,
        goal=format_goal_badge(tx, session_id),
        gateway=tx.leases.get(_GATEWAY) is not None,
        waiting=len(waiting),
    )


def render_status_line(status: StatusInfo, width: int) -> StyleAndTextTuples:
    """Return the status bar; the title is cut to the remaining width, or dropped."""
    percent = status.context_percent
    parts = [
        ("class:status", format_cell(status.model)),
        (
            "class:status.warning" if percent >= _WARNING_PERCENT else "class:status",
            f"{percent} % of {_format_limit(status)}",
        ),
        ("class:status", status.cost),
        ("class:status", format_cell(status.goal)),
        ("class:status", f"{status.waiting} waiting" if status.waiting else ""),
        ("class:status", "gateway on" if status.gateway else "gateway off"),
    ]
    shown = [part for part in parts if part[1]]
    available = width - 2 - sum(display_width(text) + 3 for _, text in shown)
    title = cut(format_cell(status.title), available) if available > len("title") and status.title else ""
    line: StyleAndTextTuples = [("", "  ")]
    for index, part in enumerate([*shown, *([("class:status.title", title)] if title else [])]):
        line += [("class:status", " · " if index else ""), part]
    return line


def _format_limit(status: StatusInfo) -> str:
    limit = status.context_limit
    return f"{limit // 1000}k" if limit >= 1000 else str(limit)


def abbreviate_home(folder: Path, environment: Mapping[str, str]) -> str:
    """Return a path with ``~`` for the home folder."""
    home = environment.get("HOME", "")
    if not home or not folder.is_relative_to(home):
        return str(folder)
    return f"~/{folder.relative_to(home)}".removesuffix("/.")
