"""What hooks are told when a conversation begins in a chat, and when that ends the one before."""

from talaria.contracts.hooks import SESSION_END, SESSION_RESET, SESSION_START, Hooks, session_facts
from talaria.contracts.platform import Incoming
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.sessions.context import place_context


def tell_of_beginning(hooks: Hooks, incoming: Incoming, key: str, begun: SessionId, over: SessionId) -> None:
    """Tell hooks of the conversation that something made begin, and of the one that is ``over`` with it, if any."""
    known = SessionContext(
        source=incoming.address.platform,
        chat_name=incoming.chat_name,
        user_id=incoming.sender.id,
        user_name=incoming.sender.name,
        session_id=begun,
        message_id=incoming.message_id,
    )
    facts = session_facts(place_context(known, key, incoming.address))
    hooks.fire(SESSION_START, facts)
    if over:
        hooks.fire(SESSION_END, {**facts, "session_id": over, "reason": "policy"})
        hooks.fire(SESSION_RESET, {**facts, "previous_session_id": over, "reason": "policy"})
