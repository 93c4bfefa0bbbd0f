"""What became of a question, shown in the message that asked it, whose buttons go away."""

import asyncio
import logging
from typing import Literal

from talaria.contracts.platform import Content, MessageRef
from talaria.contracts.store import Transaction
from talaria.contracts.stores.outbox import OutboxFilter
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, StoreError
from talaria.gateway.placing import bounded
from talaria.gateway.splitting import measure, split_content
from talaria.gateway.streaming import Stage

_PATIENCE, _LOOK_AGAIN = 60.0, 0.2

log = logging.getLogger(__name__)


async def show_decision(stage: Stage, address: Address, key: str, content: Content, decision: str) -> None:
    """Edit the message that was queued under a key; best effort: where that fails, its buttons are only dead."""
    if not stage.platform.abilities.edits:
        return
    try:
        async with asyncio.timeout(_PATIENCE):
            message_id = await _posted(stage, key)
            while not stage.throttle.take(address):  # noqa: ASYNC110 - nothing tells when a rate allows more
                await asyncio.sleep(stage.throttle.delay(address))
        if message_id:
            shown = Content(text=_with_decision(stage, content, decision))
            await bounded(stage.platform.edit(MessageRef(address, message_id), shown), stage.call)
    except (TimeoutError, PlatformError, StoreError) as error:
        log.info("%s: a question keeps its buttons: %s", stage.platform.name, str(error) or "it was not posted")


async def _posted(stage: Stage, key: str) -> str:
    """Return the message with the buttons, as soon as it is there; empty if it never will be."""

    def look(tx: Transaction) -> tuple[Literal["waiting", "sending", "sent", "failed"], str]:
        found = tx.outbox.find(OutboxFilter(key=key, sent=True))
        return (found[0].state, found[0].reference or "") if found else ("failed", "")

    while (found := await stage.store.read(look))[0] in {"waiting", "sending"}:  # noqa: ASYNC110 - another may send it
        await asyncio.sleep(_LOOK_AGAIN)
    return found[1]


def _with_decision(stage: Stage, content: Content, decision: str) -> str:
    """Return the text of the message with the buttons, and what was decided below it."""
    abilities = stage.platform.abilities
    pieces = split_content(content, abilities)
    text = next((piece.text for piece in pieces if piece.buttons), pieces[0].text if pieces else "")
    room = abilities.text_limit - measure(f"\n\n{decision}", abilities.text_unit)
    while text and measure(text, abilities.text_unit) > room:
        text = text[: len(text) * 9 // 10]
    return f"{text}\n\n{decision}"
