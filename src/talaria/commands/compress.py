"""`/compress`: summarise the older part of the conversation now."""

from talaria.agent.window import estimate_shown
from talaria.commands.command import Command, Errand
from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.sessions.summaries import kept_summary


async def run(errand: Errand) -> None:
    """Put a summary in the place of what is older; nothing of it is lost."""
    seat, session_id = errand.seat, errand.seat.session_id
    before = await seat.store.read(lambda tx: context_estimate(tx, session_id))
    if not await seat.chat.conversation.shrink():
        errand.place.show(
            f"Nothing was summarised: of about {before:,} tokens there is not enough to gain, or the model gave no"
            " summary of use."
        )
        return
    after = await seat.store.read(lambda tx: context_estimate(tx, session_id))
    errand.place.show(f"About {before:,} tokens became {after:,}. `/history` and `/search` still find everything.")


def context_estimate(tx: Transaction, session_id: SessionId) -> int:
    """Return about how many tokens the model is shown of what was said."""
    kept = kept_summary(tx, session_id)
    summary = kept.summary if kept else None
    return estimate_shown(tx.messages.load(session_id, after=summary.upto if summary else 0), summary)


COMMAND = Command(
    name="compress",
    category="Session",
    help="Summarise the older part of the conversation, to make room.",
    during_turn="refused",
    run=run,
)
