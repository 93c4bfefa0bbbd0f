"""Let the turns of this process be followed from elsewhere; what does that is loaded when the first one begins."""

from asyncio import TaskGroup
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from talaria.app.subcommands import load
from talaria.contracts.store import Store
from talaria.core.events import TurnBegan, TurnEvent
from talaria.sessions.chat import Chat, ChatWish
from talaria.sessions.seat import Emit

if TYPE_CHECKING:  # loaded by name
    from talaria.sessions.live import Feed, LiveFeeds


class LateFeeds:
    """The turns of one process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feeds: LiveFeeds | None = None

    def overhear(self, wish: ChatWish, emit: Emit, stack: AsyncExitStack, jobs: TaskGroup) -> "Overheard":
        """Return what hands the events of a conversation on; it is over with the stack."""
        overheard = Overheard(self, wish, emit, jobs)
        stack.push_async_callback(overheard.close)
        return overheard

    def open(self, chat: Chat, wish: ChatWish, emit: Emit, jobs: TaskGroup) -> "Feed":
        """Return what tells of a conversation."""
        live = load("talaria.sessions.live")
        if self._feeds is None:
            self._feeds = live.LiveFeeds(self._store)
        feed: Feed = live.Feed(self._feeds, chat, jobs, emit, wish.moved)
        return feed


class Overheard:
    """The events of one conversation; ``chat`` is it, as soon as it is open."""

    __slots__ = ("_emit", "_feed", "_feeds", "_jobs", "_wish", "chat")

    def __init__(self, feeds: LateFeeds, wish: ChatWish, emit: Emit, jobs: TaskGroup) -> None:
        self._feeds = feeds
        self._wish = wish
        self._emit = emit
        self._jobs = jobs
        self._feed: Feed | None = None
        self.chat: Chat | None = None

    def event(self, event: TurnEvent) -> None:
        """Hand an event on to the place, and to whoever watches."""
        begins = isinstance(event, TurnBegan) and self._feed is None and self._wish.watchable
        if begins and self.chat is not None:
            self._feed = self._feeds.open(self.chat, self._wish, self._emit, self._jobs)
        (self._emit if self._feed is None else self._feed.event)(event)

    async def close(self) -> None:
        """Tell what is still to be told, and let go of the conversation."""
        self.chat = None
        if self._feed is not None:
            await self._feed.close()
