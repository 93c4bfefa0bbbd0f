"""Sign-ins with a subscription: their state, and what a front end shows while a person signs in."""

from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

SignInWay = Literal["auto", "browser", "device", "paste"]
LoginCondition = Literal["signed in", "needs sign-in", "signed out"]


class LoginState(Struct, frozen=True, kw_only=True):
    """A sign-in that exists or could: ``name`` is for commands, ``provider`` is what it gives access to.

    ``expires_at`` is when the short-lived token expires, which renews itself. ``problem`` says why a person has to
    sign in again.
    """

    name: str
    title: str
    provider: str
    condition: LoginCondition = "signed out"
    account: str = ""
    plan: str = ""
    expires_at: datetime | None = None
    file: str = ""
    problem: str = ""


class SignInSurface(Protocol):
    """The terminal of the person who signs in."""

    @property
    def has_browser(self) -> bool:
        """Return whether a browser can be opened on this computer."""

    def show(self, text: str) -> None:
        """Print a line."""

    def open_browser(self, url: str) -> bool:
        """Open an address in a browser, and return whether there is one."""

    def ask(self, prompt: str) -> str:
        """Return a line that the person types; empty at the end of the input."""
