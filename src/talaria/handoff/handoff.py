"""Handoff requests, refusal codes, destinations and texts. The stored row is in `contracts`."""

from enum import StrEnum

from msgspec import Struct

from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId

HANDOFFS = "handoffs"
ARRIVAL_PROMPT = (
    "This message is automatic, not from the person. They have moved this conversation here, to {platform}. You have"
    " its full history. Say in one or two sentences where things stand, and continue when they write."
)
ARRIVED = "This conversation continues here now."
ARRIVED_MID_TURN = "This conversation continues here now, in the middle of a turn."
UNTITLED = "A conversation"
NO_HOME_CHAT = "{platform} has no home chat; send `{sethome}` in the chat you want to use"
DELETED = "the conversation was deleted"
TIMED_OUT = "no gateway finished it within {seconds:g} s"
HERE_NOW = (
    "This conversation has moved to {where}.\n\nTo come back, run `talaria chat -r {session_id}` in a shell, or"
    " send `/resume {session_id}` in a chat."
)


"""Topic of new requests."""


def handoff_topic(session_id: SessionId) -> str:
    """Return the topic that is notified when the state of a session's handoff changes."""
    return f"handoff:{session_id}"


class HandoffRequest(Struct, frozen=True):
    """Request to move a session to ``target``: ``platform`` or ``platform:chat[:thread]`` as typed.

    An ``immediate`` handoff moves a running turn too; any other is refused while a turn is running.
    """

    session_id: SessionId
    target: str
    immediate: bool = False

    @property
    def platform(self) -> str:
        """The name of the chat network."""
        return self.target.partition(":")[0].strip().lower()


class RefusalCode(StrEnum):
    """Reasons to refuse a request."""

    NO_NETWORK = "no_network"
    UNKNOWN_PLATFORM = "unknown_platform"
    NOT_CONFIGURED = "not_configured"
    NO_HOME_CHAT = "no_home_chat"
    UNKNOWN_TARGET = "unknown_target"
    TURN_RUNNING = "busy"
    NO_GATEWAY = "no_gateway"
    IN_PROGRESS = "in_progress"


class HandoffRefused(Refused):
    """Error for a request that cannot be granted now.

    Surfaces choose their message by ``code``; the message of the error is for a shell.
    """

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class HandoffLost(TalariaError):
    """Error for a handoff that was withdrawn or taken over by another worker."""


class HandoffDestination(Struct, frozen=True):
    """Address that a session moves to, and the session key of the owner's next message there.

    ``in_own_thread`` is true if the thread was created for this session; ``user_id`` is the owner's id there.
    """

    address: Address
    key: str
    in_own_thread: bool
    user_id: str = ""

    @property
    def route(self) -> ReplyRoute:
        """The route for the reply of a turn that is moved along."""
        return ReplyRoute(self.address, user_id=self.user_id)


REFUSALS = {
    RefusalCode.NO_NETWORK: "No chat network is set up. Run `talaria setup chat`.",
    RefusalCode.NOT_CONFIGURED: "{platform} isn't set up yet. Run `talaria setup chat`.",
    RefusalCode.TURN_RUNNING: "A turn is running. Wait for it, stop it, or use `--now` to move it too.",
    RefusalCode.NO_GATEWAY: "No gateway is running. Start one with `talaria gateway start`.",
    RefusalCode.IN_PROGRESS: "This conversation is already being handed off. Wait for that to finish, or cancel it.",
}


"""Message for each refusal; those about the target use the error of its lookup instead."""
