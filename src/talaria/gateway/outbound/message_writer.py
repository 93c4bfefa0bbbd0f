"""Writer for one outbox message: posts its pieces within the rate limits, reusing the messages of a preview."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field, structs

from talaria.contracts.platform import Content, MessageRef, Platform, Rate, Rates
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxItem
from talaria.contracts.values import SessionValue
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, Rejected, SlowDown, Unreachable
from talaria.core.ids import WorkerId, is_gone
from talaria.gateway.outbound.text_parts import shorten, split_content
from talaria.runtime.outbox import read_content
from talaria.settings.model import LiveSettings

_MAX_CHATS = 2_000
_UNLIMITED = 1_000_000
# Share of a rate that a call leaves to more important calls. All calls except replies share a third of the rate.
REPLY, PREVIEW, TYPING = 0.0, 0.6, 0.8
_EXTRAS_DIVISOR = 3
T = TypeVar("T")
BLANK_TEXT = "⋯"  # text of a surplus message, whose preview was longer than the final reply
_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.03, 0.5
_THREAD_THRESHOLD = 8_000  # characters; longer texts are split in a thread

log = logging.getLogger(__name__)


class DeliveryPolicy(Struct, frozen=True, kw_only=True):
    """Timeouts and limits of delivery.

    ``call`` limits one call to a network; ``claim`` is how long an item is claimed, which is longer than several calls.
    ``poll`` is the interval of outbox checks without a notification. ``grace`` is the time that calls in progress get
    at shutdown. ``quiet`` is how long a final text waits for a preview to end. ``hold`` is how long an item may wait
    for the rate limit of its chat before it returns to the outbox.

    At most ``at_once`` calls for different addresses are made in parallel, one at a time for each address: a worker
    that is killed leaves at most one message in doubt for each of them. ``at_hand`` limits the claimed items, including
    those that wait for the rate limit of their chat.
    """

    call: timedelta = timedelta(seconds=20)
    claim: timedelta = timedelta(seconds=120)
    poll: timedelta = timedelta(seconds=10)
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(seconds=5)
    quiet: timedelta = timedelta(seconds=20)
    hold: timedelta = timedelta(seconds=5)
    at_once: int = 16
    at_hand: int = 128

    def pause(self, attempts: int) -> timedelta:
        """Return the pause after this many attempts; it doubles each time up to ``longest_pause``."""
        return min(self.first_pause * (1 << min(max(attempts - 1, 0), 30)), self.longest_pause)


class Throttle:
    """Rate limiter shared by all callers of one network.

    A caller makes a call only after `take` returned ``True``; `delay` returns how long to wait. A pause applies to the
    whole network if the network says so, or does not say and another chat is paused already; else to one chat.
    """

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._network = 0.0
        self._extras = 0.0
        self._extras_rate = _scale_rate(self._rates.network)
        self._chats: dict[str, float] = {}
        self._shut_until = 0.0
        self._chats_shut_until: dict[str, float] = {}

    @property
    def shut_for(self) -> float:
        """The seconds for which the whole network is paused."""
        return max(self._shut_until - _now(), 0.0)

    @property
    def free(self) -> int:
        """The number of calls that the network's rate allows now."""
        rate = self._rates.network
        if self.shut_for:
            return 0
        return _UNLIMITED if rate is None else int(rate.burst - _count_used(self._network, rate))

    @property
    def network_delay(self) -> float:
        """The seconds until the network's rate allows another call."""
        return max(self.shut_for, _delay(self._network, self._rates.network, REPLY))

    def delay(self, to: Address, share: float = REPLY) -> float:
        """Return the seconds until a chat may be called; ``share`` of each rate is left to other calls."""
        shut = self._chats_shut_until.get(to.chat_id, 0.0) - _now()
        chat = _delay(self._chats.get(to.chat_id, 0.0), self._get_chat_rate(to), share)
        extra = _delay(self._extras, self._extras_rate, 0.0) if share else 0.0
        return max(shut, self.shut_for, _delay(self._network, self._rates.network, share), chat, extra)

    def take(self, to: Address, share: float = REPLY) -> bool:
        """Count a call that is about to be made; ``False`` if it may not be made yet."""
        if self.delay(to, share):
            return False
        self._network = _add_call(self._network, self._rates.network)
        if share:
            self._extras = _add_call(self._extras, self._extras_rate)
        rate = self._get_chat_rate(to)
        if rate is not None:
            self._chats[to.chat_id] = _add_call(self._chats.get(to.chat_id, 0.0), rate)
        if len(self._chats) > _MAX_CHATS:
            now = _now()
            self._chats = {chat: until for chat, until in self._chats.items() if until > now}
        return True

    def slow_down(self, to: Address, error: SlowDown) -> None:
        """Record a pause that the network asked for."""
        now, until = _now(), _now() + error.retry_after.total_seconds()
        self._chats_shut_until = {chat: end for chat, end in self._chats_shut_until.items() if end > now}
        others = self._chats_shut_until.keys() - {to.chat_id}
        if error.everywhere or (error.everywhere is None and others):
            self._shut_until = max(self._shut_until, until)
        self._chats_shut_until[to.chat_id] = max(self._chats_shut_until.get(to.chat_id, 0.0), until)

    def shut(self, duration: timedelta) -> None:
        """Pause the whole network for this long; a longer pause stays in force."""
        self._shut_until = max(self._shut_until, _now() + duration.total_seconds())

    def open(self) -> None:
        """End the pause of the whole network."""
        self._shut_until = 0.0

    def _get_chat_rate(self, to: Address) -> Rate | None:
        return self._rates.chat if to.chat_type == "private" else self._rates.group


def _now() -> float:
    return asyncio.get_running_loop().time()


def _count_used(until: float, rate: Rate) -> float:
    """Return how many calls of a burst are used up; ``until`` is when none would be."""
    return max(until - _now(), 0.0) * rate.per_second


def _delay(until: float, rate: Rate | None, share: float) -> float:
    if rate is None:
        return 0.0
    most = max(rate.burst * (1 - share), 1.0)
    return max((_count_used(until, rate) + 1 - most) / rate.per_second, 0.0)


def _scale_rate(rate: Rate | None) -> Rate | None:
    return None if rate is None else Rate(rate.per_second / _EXTRAS_DIVISOR, max(rate.burst // _EXTRAS_DIVISOR, 1))


def _add_call(until: float, rate: Rate | None) -> float:
    return 0.0 if rate is None else max(until, _now()) + 1 / rate.per_second


async def call_with_timeout(call: Awaitable[T], seconds: float) -> T:
    """Return the result of a network call; raises `Unreachable` after this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise Unreachable(f"no answer within {seconds:g} s") from error


class PostedMessages(Struct, frozen=True, omit_defaults=True):
    """Ids of the messages posted for a reply so far; an empty id may or may not have been posted.

    ``final_count`` counts earlier messages of the reply, which are final. The first ``done`` of ``messages`` have their
    final text. ``live`` is the worker that may still be editing them. ``maybe`` is the number of further messages that
    a worker may have posted under the next keys before it died.
    """

    address: Address
    messages: tuple[str, ...] = ()
    final_count: int = field(name="let_go", default=0)
    done: int = 0
    live: WorkerId = WorkerId("")
    maybe: int = 0

    def at(self, index: int) -> str | None:
        """Return the message id at a position; empty if one may exist there, ``None`` if none does."""
        if index < len(self.messages):
            return self.messages[index]
        return "" if index < len(self.messages) + self.maybe else None

    def key(self, reply: str, index: int) -> str:
        """Return the idempotency key of the message at a position of a reply."""
        return f"{reply}:{self.final_count + index + 1}"

    def for_address(self, address: Address) -> "PostedMessages":
        """Return the posted messages if they are at this address, else an empty record with unused keys.

        The address differs if the session has moved.
        """
        if address == self.address:
            return self
        posted = self.final_count + len(self.messages) + self.maybe
        return structs.replace(PostedMessages(address), final_count=posted)


POSTED_MESSAGES = SessionValue("posted_messages", PostedMessages)  # by the reply's key in the outbox


class RateLimited(Exception):
    """Signal that the rate limit of a chat allows no call for ``delay``; the rest is sent later."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"rate limited: the chat is available in {delay}")
        self.delay = delay


class DeliveryContext(Struct, frozen=True, kw_only=True):
    """State shared by the deliveries of one network.

    ``settings`` say after how many characters a message is cut; ``files`` is the folder for whole texts. ``waits`` is
    called when an item starts waiting for its chat, so that others can be sent.
    """

    store: Store
    platform: Platform
    throttle: Throttle
    pace: DeliveryPolicy
    settings: LiveSettings
    files: Path | None = None
    waits: Callable[[], None] = lambda: None


class MessageWriter:
    """Writer of one outbox item. Raises what a `Platform` raises; pieces already posted are not posted again.

    `request_stop` makes it stop after the current piece. ``repeated`` is true if a piece may have been posted
    twice, because a worker died while posting it and the network has no idempotency keys. ``is_waiting`` is true while
    it waits for the preview to end or for the rate limit of its chat. ``is_written`` is true once all pieces are
    posted. ``has_record`` is true if the store may have a record of posted messages.
    """

    def __init__(self, context: DeliveryContext, item: OutboxItem, shown: PostedMessages | None) -> None:
        self._context = context
        self._store = context.store
        self._platform = context.platform
        self._policy = pace = context.pace
        self._item = item
        self._posted = (shown or PostedMessages(item.address)).for_address(item.address)
        self._doubtful = item.doubtful
        self._deadline = asyncio.get_running_loop().time() + (pace.claim - 2 * pace.call).total_seconds()
        self._stop_requested = False
        self.is_waiting = False
        self.is_written = False
        self.repeated = False
        self.has_record = shown is not None

    def request_stop(self) -> None:
        """Stop after the current piece."""
        self._stop_requested = True

    async def post_pieces(self) -> str:
        """Post the missing pieces; return the id of the message with buttons, else of the first one."""
        await self._wait_for_preview()
        pieces = await self._split()
        for index in range(self._posted.done, len(pieces)):
            message_id = await self._write_piece(index, pieces[index])
            self._posted = _set_message(self._posted, index, message_id)
            if index + 1 < len(pieces):
                await self._record()
                self._check_deadline()
        await self._blank_surplus(len(pieces))
        self.is_written = True
        first = next((index for index, piece in enumerate(pieces) if piece.buttons), 0)
        return self._posted.messages[first] if self._posted.messages else ""

    async def _split(self) -> list[Content]:
        """Return the pieces; long texts are split in a thread."""
        payload, abilities = self._item.payload, self._platform.abilities
        limit = self._context.settings.current.gateway.reply_characters
        folder = self._context.files if abilities.file_limit else None
        file = folder / self._item.session_id / "replies" / f"{_make_file_name(self._item.key)}.md" if folder else None

        def split() -> list[Content]:
            content = read_content(payload)
            return split_content(shorten(content, limit, file) if len(content.text) > limit else content, abilities)

        return split() if len(payload) < _THREAD_THRESHOLD else await asyncio.to_thread(split)

    async def _write_piece(self, index: int, piece: Content) -> str:
        """Write a piece into its message, posting it if needed, and return the message id."""
        key = self._posted.key(self._item.key, index)
        known = self._posted.at(index)
        if known and not piece.files:
            return await self._edit_or_send(known, key, piece)
        message_id = await self._send(piece, key)
        abilities = self._platform.abilities
        if known == "" and abilities.idempotent and abilities.edits:
            # With this key, the network may have returned a message that a preview posted with another text.
            await self._edit(message_id, piece)
        self.repeated |= not abilities.idempotent and (known == "" or self._doubtful)
        self._doubtful = False
        return message_id

    async def _edit_or_send(self, message_id: str, key: str, piece: Content) -> str:
        """Edit a message; if that is rejected, send the text as a new message."""
        try:
            await self._edit(message_id, piece)
        except Rejected as error:
            log.warning("%s: couldn't edit message %s, sending it again: %s", self._platform.name, message_id, error)
            return await self._send(piece, f"{key}:resend")
        return message_id

    def _check_deadline(self) -> None:
        """Raise `Unreachable` after a stop request or before the claim expires; the rest is sent later."""
        if self._stop_requested or asyncio.get_running_loop().time() > self._deadline:
            raise Unreachable("the rest is sent with the next attempt")

    async def _blank_surplus(self, count: int) -> None:
        """Blank the surplus messages of a preview that was longer than the final reply."""
        surplus = [message_id for message_id in self._posted.messages[count:] if message_id]
        if surplus:
            await self._record()
        for message_id in surplus:
            try:
                await self._edit(message_id, Content(text=BLANK_TEXT))
            except PlatformError as error:
                log.warning("%s: couldn't blank message %s: %s", self._platform.name, message_id, error)

    async def _send(self, piece: Content, key: str) -> str:
        return (await self._call_platform(lambda: self._platform.send(self._item.address, piece, key))).message_id

    async def _edit(self, message_id: str, piece: Content) -> None:
        await self._call_platform(lambda: self._platform.edit(MessageRef(self._item.address, message_id), piece))

    async def _call_platform(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._wait_for_rate()
        return await call_with_timeout(call(), self._policy.call.total_seconds())

    async def _wait_for_rate(self) -> None:
        """Wait until the rate limits allow a call; raises `RateLimited` if that would take long."""
        throttle, to = self._context.throttle, self._item.address
        while not throttle.take(to):
            delay = throttle.delay(to)
            if self._stop_requested or delay > self._policy.hold.total_seconds():
                raise RateLimited(timedelta(seconds=delay))
            self._start_waiting()
            await asyncio.sleep(min(delay, _MAX_POLL_INTERVAL))
        self.is_waiting = False

    def _start_waiting(self) -> None:
        if not self.is_waiting:
            self.is_waiting = True
            self._context.waits()

    async def _record(self) -> None:
        self.has_record = True
        shown = self._posted
        await self._store.write(lambda tx: POSTED_MESSAGES.write(tx, self._item.session_id, shown, self._item.key))

    def _read_posted(self, tx: Transaction) -> PostedMessages | None:
        return POSTED_MESSAGES.get(tx, self._item.session_id, self._item.key)

    async def _wait_for_preview(self) -> None:
        """Wait until the preview has ended, so that none of its edits follows the final text."""
        pause = _POLL_INTERVAL
        try:
            async with asyncio.timeout(self._policy.quiet.total_seconds()):
                while self._posted.live and not is_gone(self._posted.live):
                    self._start_waiting()
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _MAX_POLL_INTERVAL)
                    found = await self._store.read(self._read_posted)
                    self._posted = (found or self._posted).for_address(self._item.address)
        except TimeoutError:
            log.warning("%s: a preview of %s hasn't ended", self._platform.name, self._item.key)
        self.is_waiting = False
        self._posted = structs.replace(self._posted, live=WorkerId(""))


def _set_message(shown: PostedMessages, index: int, message_id: str) -> PostedMessages:
    messages = (*shown.messages[:index], message_id, *shown.messages[index + 1 :])
    return structs.replace(shown, messages=messages, done=index + 1)


def _make_file_name(key: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in key)
