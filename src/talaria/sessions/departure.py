"""A session that is being handed over, seen from the place it leaves: no turn begins there until that is decided."""

from typing import Protocol

from talaria.contracts.store import Store
from talaria.core.ids import SessionId
from talaria.sessions.relocation import being_handed_over


class TurnGate:
    """Whether turns may begin in an open conversation; ``reason`` is empty unless the gate is closed."""

    def __init__(self) -> None:
        self.reason = ""

    def close(self, reason: str) -> None:
        """Let no turn begin; a running one continues."""
        self.reason = reason

    def open(self) -> None:
        """Let turns begin again."""
        self.reason = ""


class _OpenConversation(Protocol):
    session_id: SessionId
    gate: TurnGate

    def wake(self) -> None: ...


class Departure:
    """The handoff that somebody at a place has asked for; ``session_id`` is ``None`` while there is none."""

    def __init__(self) -> None:
        self.session_id: SessionId | None = None
        self._platform = ""

    def begin(self, conversation: _OpenConversation, platform: str) -> None:
        """Close the gate of a conversation that is about to be handed over."""
        self.session_id, self._platform = conversation.session_id, platform
        self.apply(conversation)

    def apply(self, conversation: _OpenConversation) -> None:
        """Close the gate of this conversation too, if it is the one that leaves: it was opened again meanwhile."""
        if self.session_id == conversation.session_id:
            conversation.gate.close(being_handed_over(self._platform))

    def end(self, conversation: _OpenConversation | None, *, stays: bool) -> None:
        """Forget the handoff; a conversation that stays takes turns again, for what was written meanwhile too."""
        session_id, self.session_id = self.session_id, None
        if stays and conversation is not None and conversation.session_id == session_id:
            conversation.gate.open()
            conversation.wake()


async def cancel_handoff(store: Store, session_id: SessionId, reason: str) -> bool:
    """Withdraw the handoff of a session; ``False`` where none is under way any more."""
    return await store.write(lambda tx: tx.handoffs.withdraw_handoff(session_id, reason))
