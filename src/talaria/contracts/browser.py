"""Browsers of sessions, as commands and the web app see them: state, closing, taking over."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from talaria.core.ids import SessionId

_MOST_PIXELS = 20_000


class BrowserOptions(Protocol):
    """The options of all browsers of a profile, as in the settings."""

    @property
    def executable_path(self) -> str:
        """The browser to start; empty to find one."""

    @property
    def attach(self) -> str:
        """The address of the person's own browser; empty to start one."""

    @property
    def visible(self) -> bool:
        """Return whether it has a window, where there is a display."""

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Hosts that are not public and may be reached."""

    @property
    def keep_cookies(self) -> bool:
        """Return whether cookies are stored for later sessions."""

    @property
    def idle_minutes(self) -> float:
        """Minutes without use after which a browser is closed."""

    @property
    def timeout_seconds(self) -> float:
        """The limit for pages and elements."""


class BrowserStatus(Struct, frozen=True, kw_only=True):
    """The browser of a session; ``used_at`` is in seconds since the epoch."""

    session_id: SessionId
    running: bool
    with_person: bool
    visible: bool = False
    sandboxed: bool = True
    attached: bool = False
    pid: int = 0
    url: str = ""
    used_at: float = 0.0


class ViewFrame(Struct, frozen=True, omit_defaults=True):
    """A picture of a page for a person: ``image`` is a JPEG in base64, empty if only the rest changed.

    ``dialog`` is the text of an open dialog, which has to be answered first.
    """

    image: str = ""
    width: int = 0
    height: int = 0
    url: str = ""
    title: str = ""
    dialog: str = ""


class BrowserInput(Struct, frozen=True, omit_defaults=True):
    """An input of a person who has taken over.

    ``x`` and ``y`` are pixels of the page. ``text`` is what to type, the name of a key, an address to open, or the
    answer to a dialog; ``accept`` is whether a dialog is confirmed.
    """

    kind: Literal["move", "down", "up", "wheel", "type", "key", "open", "back", "dialog"]
    x: Annotated[float, Meta(ge=-_MOST_PIXELS, le=_MOST_PIXELS)] = 0.0
    y: Annotated[float, Meta(ge=-_MOST_PIXELS, le=_MOST_PIXELS)] = 0.0
    delta_x: Annotated[float, Meta(ge=-_MOST_PIXELS, le=_MOST_PIXELS)] = 0.0
    delta_y: Annotated[float, Meta(ge=-_MOST_PIXELS, le=_MOST_PIXELS)] = 0.0
    text: Annotated[str, Meta(max_length=20_000)] = ""
    accept: bool = False


class LiveView(Protocol):
    """A live view of a session's browser, with input; one person at a time."""

    def frames(self) -> AsyncIterator[ViewFrame]:
        """Yield frames as the page changes, until the view is closed or the browser ends."""

    async def send(self, inputs: Sequence[BrowserInput]) -> None:
        """Pass inputs on, in order; raises `Refused` unless the person has taken over."""

    async def close(self) -> None:
        """End the view."""


class SessionBrowsers(Protocol):
    """The browsers of all sessions of a profile."""

    def list(self) -> Sequence[BrowserStatus]:
        """Return all browsers with a profile folder, used last first."""

    def find(self, session_id: SessionId) -> BrowserStatus | None:
        """Return the browser of a session; ``None`` if it has none."""

    def take_over(self, session_id: SessionId) -> None:
        """Give the browser to the person; the agent's actions wait until `hand_back`."""

    def hand_back(self, session_id: SessionId) -> None:
        """Give the browser back to the agent."""

    async def close_browser(self, session_id: SessionId) -> bool:
        """Close the browser of a session, keeping its profile; ``False`` if it isn't running."""

    def link(self, session_id: SessionId) -> str:
        """Return the address of the page on which the person can take over."""

    async def open_view(self, session_id: SessionId) -> LiveView:
        """Open a live view; raises `NotFound` if there is no running browser."""
