"""Handoff service: request, await and cancel a handoff; shared by slash commands, the CLI and the API."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum

from msgspec import Struct

from talaria.contracts.store import Database, Store, Transaction
from talaria.contracts.stores.sessions import HandoffState
from talaria.core.addresses import WEB, Address, ReplyRoute
from talaria.core.errors import Ambiguous, NotFound, Refused, TalariaError
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId
from talaria.runtime.workers import NO_GATEWAY, NO_WEB_SERVER, is_platform_served
from talaria.sessions.chat_directory import find_target

HANDOFFS = "handoffs"  # topic of new requests
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
POLL_SECONDS = 1.0
_BLOCKING_POLL_SECONDS = 0.05
_UNFINISHED = ("pending", "running")
_DELETED = HandoffState(state="failed", platform=None, error=DELETED)


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
    NO_WEB_SERVER = "no_web_server"
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


# Message for each refusal; those about the target use the error of its lookup instead.
REFUSALS = {
    RefusalCode.NO_NETWORK: "No chat network is set up. Run `talaria setup chat`.",
    RefusalCode.NOT_CONFIGURED: "{platform} isn't set up yet. Run `talaria setup chat`.",
    RefusalCode.TURN_RUNNING: "A turn is running. Wait for it, stop it, or use `--now` to move it too.",
    RefusalCode.NO_GATEWAY: NO_GATEWAY,
    RefusalCode.NO_WEB_SERVER: NO_WEB_SERVER,
    RefusalCode.IN_PROGRESS: "This conversation is already being handed off. Wait for that to finish, or cancel it.",
}


async def request_handoff(
    store: Store, request: HandoffRequest, networks: Mapping[str, bool], *, is_busy: bool = False
) -> None:
    """Store a request, which notifies the gateways; raises `HandoffRefused`.

    ``networks`` maps each known network to whether it is configured; ``is_busy`` is true if the requester runs a turn
    itself.
    """
    await store.write(lambda tx: write_request(tx, request, networks, is_busy=is_busy))


def write_request(
    tx: Transaction, request: HandoffRequest, networks: Mapping[str, bool], *, is_busy: bool = False
) -> None:
    """Store a request, or raise `HandoffRefused` with the first reason against it."""
    target = _resolve_target(tx, request, networks)
    if not request.immediate and (is_busy or tx.turns.find(request.session_id, running=True, limit=1)):
        raise _refuse(RefusalCode.TURN_RUNNING)
    _require_server(tx, target.platform)
    request_handoff_to(tx, request.session_id, target, immediate=request.immediate)


def request_handoff_to(tx: Transaction, session_id: SessionId, target: Address, *, immediate: bool = False) -> None:
    """Store a request without further checks; raises `HandoffRefused` if a handoff is in progress."""
    if not tx.handoffs.request_handoff(session_id, target.platform, target=target, immediate=immediate):
        raise _refuse(RefusalCode.IN_PROGRESS)
    tx.notify(HANDOFFS)


async def wait_for_handoff(
    store: Store,
    session_id: SessionId,
    seconds: float,
    *,
    poll_seconds: float = POLL_SECONDS,
    on_progress: Callable[[HandoffState], None] = lambda _: None,
) -> HandoffState:
    """Return the final state of a handoff; one that is not done within ``seconds`` is withdrawn.

    Waits for notifications, and checks every ``poll_seconds`` in case one is lost. ``on_progress`` is called after each
    check of an unfinished handoff.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    async with store.subscribe(handoff_topic(session_id)) as subscription:
        while (remaining := deadline - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(poll_seconds, remaining)):
                    await subscription.wait()
            state = await store.read(lambda tx: read_state(tx, session_id))
            if state["state"] not in _UNFINISHED:
                return state
            on_progress(state)
    return await store.write(lambda tx: _withdraw_late(tx, session_id, seconds))


def wait_for_handoff_blocking(database: Database, session_id: SessionId, seconds: float) -> HandoffState:
    """Wait for a handoff like `wait_for_handoff`, in a program without an event loop; polls the store."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = database.read(lambda tx: read_state(tx, session_id))
        if state["state"] not in _UNFINISHED:
            return state
        time.sleep(_BLOCKING_POLL_SECONDS)
    return database.write(lambda tx: _withdraw_late(tx, session_id, seconds))


async def cancel_handoff(store: Store, session_id: SessionId, reason: str) -> bool:
    """Withdraw the handoff of a session; ``False`` if none is pending or running."""

    def withdraw(tx: Transaction) -> bool:
        tx.notify(handoff_topic(session_id))
        return tx.handoffs.withdraw_handoff(session_id, reason)

    return await store.write(withdraw)


def read_state(tx: Transaction, session_id: SessionId) -> HandoffState:
    """Return the state of a handoff; for a deleted session it is failed."""
    return tx.handoffs.get_handoff_state(session_id) or _DELETED


def _withdraw_late(tx: Transaction, session_id: SessionId, seconds: float) -> HandoffState:
    tx.handoffs.withdraw_handoff(session_id, TIMED_OUT.format(seconds=seconds))
    return read_state(tx, session_id)


def _resolve_target(tx: Transaction, request: HandoffRequest, networks: Mapping[str, bool]) -> Address:
    platform, chat = request.platform, request.target.partition(":")[2].strip()
    if platform != WEB and not any(name != WEB for name in networks):
        raise _refuse(RefusalCode.NO_NETWORK)
    if not networks.get(platform, True):
        raise _refuse(RefusalCode.NOT_CONFIGURED, platform)
    if platform == WEB:
        _require_server(tx, WEB)  # it sets the home chat
    try:
        return find_target(tx, f"{platform}:{chat}", networks)
    except (NotFound, Ambiguous, Refused) as error:
        code = RefusalCode.UNKNOWN_TARGET if chat else RefusalCode.NO_HOME_CHAT
        raise HandoffRefused(code if platform in networks else RefusalCode.UNKNOWN_PLATFORM, str(error)) from error


def _require_server(tx: Transaction, platform: str) -> None:
    if not is_platform_served(tx, platform):
        raise _refuse(RefusalCode.NO_WEB_SERVER if platform == WEB else RefusalCode.NO_GATEWAY)


def _refuse(code: RefusalCode, platform: str = "") -> HandoffRefused:
    return HandoffRefused(code, REFUSALS[code].format(platform=platform_label(platform)))
