"""Replies of finished turns: queued in the outbox, with an optional footer line."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from talaria.contracts.models import ModelInfo
from talaria.contracts.store import Transaction
from talaria.contracts.turn_listener import TurnResult
from talaria.contracts.turn_log import ModelStep
from talaria.core.formatting import HARMFUL, format_money
from talaria.gateway.outbound.voice_replies import VoiceReplies
from talaria.runtime.outbox import queue_turn_result, render_turn_end
from talaria.settings.live import LiveSettings

_UNSAFE = re.compile(rf"{HARMFUL}|[`\n]")


class ReplyFooter(Struct, frozen=True, kw_only=True):
    """Footer of a reply: model, context, folder and cost; unknown values are left out."""

    model: str = ""
    context: int = 0
    context_limit: int = 0
    folder: Path | None = None
    cost_microdollars: int = 0


def runtime(steps: Sequence[ModelStep], model: str, info: ModelInfo, folder: Path) -> ReplyFooter:
    """Return the footer values of a turn; ``model`` is used if there were no model calls."""
    last = steps[-1] if steps else None
    return ReplyFooter(
        model=last.model if last else model,
        context=last.context if last else 0,
        context_limit=info.context_limit if last and last.context else 0,
        folder=folder,
        cost_microdollars=sum(step.usage.cost_microdollars or 0 for step in steps),
    )


def format_footer(runtime: ReplyFooter) -> str:
    """Return the footer as a Markdown line; empty if no value is known."""
    parts = [
        runtime.model,
        _format_context(runtime),
        _shorten_path(runtime.folder) if runtime.folder else "",
        format_money(runtime.cost_microdollars),
    ]
    return " · ".join(f"`{_UNSAFE.sub('', part)}`" for part in parts if part)


def add_footer(text: str, runtime: ReplyFooter) -> str:
    """Return a reply with the footer below it."""
    line = format_footer(runtime)
    return f"{text}\n\n{line}" if line else text


def _format_context(runtime: ReplyFooter) -> str:
    if not runtime.context_limit:
        return ""
    percent = round(100 * runtime.context / runtime.context_limit)
    limit = runtime.context_limit
    return f"{percent} % of {limit // 1000}k" if limit >= 1000 else f"{percent} % of {limit}"


def _shorten_path(folder: Path) -> str:
    home = Path.home()
    return f"~/{folder.relative_to(home)}".removesuffix("/.") if folder.is_relative_to(home) else str(folder)


class ReplyQueuer:
    """Turn listener that queues the result of each turn for delivery, and has it spoken while that is switched on.

    ``decorate`` returns the reply with additions that are not part of the transcript.
    """

    resumable: ClassVar = False

    def __init__(
        self,
        decorate: Callable[[Transaction, TurnResult, str], str],
        settings: LiveSettings,
        voice: VoiceReplies | None = None,
    ) -> None:
        self._decorate = decorate
        self._settings = settings
        self._voice = voice

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> None:
        """Queue the result for the chat from which the message came, in the transaction that ends the turn."""
        if ending.route is not None:
            queue_turn_result(tx, ending, self._decorate(tx, ending, render_turn_end(ending.end)))
        if self._voice is not None and self._settings.current.voice.speak != "off":
            self._voice.turn_ended(tx, ending)

    async def follow_up(self) -> bool:
        """Speak pending replies."""
        if self._voice is not None and self._settings.current.voice.speak != "off":
            await self._voice.follow_up()
        return False
