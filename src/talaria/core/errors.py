"""Errors raised on purpose: one type for each way to react."""

from datetime import timedelta
from typing import ClassVar

from msgspec import Struct


class TalariaError(Exception):
    """Raised on purpose. ``str(error)`` is for the log; a chat may only see ``public``, the owner ``for_owner``.

    One that is ``passing`` may not come again when the same is asked once more.
    """

    public: ClassVar[str] = "Something went wrong on my side."
    passing: ClassVar[bool] = False

    @property
    def for_owner(self) -> str:
        """The cause and the next step, for the terminal of the owner."""
        return str(self) or self.public


class NotFound(TalariaError):
    """What was named does not exist."""

    public = "I could not find that."


class Ambiguous(TalariaError):
    """What was named fits several things; the message lists them."""

    public = "That fits more than one; please be more exact."


class Refused(TalariaError):
    """The request makes no sense in the present state; the message says what to do instead."""

    public = "That is not possible right now."


class Busy(Refused):
    """Somebody else works on it; it may be asked for again when they are done."""


class StoreError(TalariaError):
    """The store could not do what was asked."""

    public = "I can't reach my database right now. Try again in a moment."


class StoreBusy(StoreError):
    """Another process held the store for too long; trying again makes sense."""


class StoreConflict(StoreError):
    """Two transactions got in each other's way and this one was undone; the store runs it again itself."""


class StoreFull(StoreError):
    """The disk is full: nothing was written, nothing is lost; free some space and try again."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or opened."""


class StoreGone(StoreUnavailable):
    """The file was deleted, moved away or replaced while in use: what is written to it now would be lost."""


class StoreMissing(StoreUnavailable):
    """The file is missing or empty although there was a store: no new one is made in its place."""


class StoreCorrupt(StoreError):
    """The file is damaged; `talaria doctor --fix` keeps it aside and recovers what can be read."""


class StoreTooNew(StoreError):
    """A newer Talaria made this store; it was left untouched."""


class LeaseLost(StoreError):
    """Another worker owns this now: what was about to be written must not be."""


class ModelSource(Struct, frozen=True, kw_only=True):
    """The provider account that an error came from; ``secret`` names its API key, empty if none was sent."""

    provider: str
    title: str
    base_url: str
    secret: str = ""
    is_local: bool = False
    is_custom: bool = False
    model: str = ""


class ProviderError(TalariaError):
    """A model could not be asked, or did not answer.

    ``status`` is the HTTP status, if there was one; ``source`` is set by the adapter that the error passes through.
    """

    public = "The model did not answer."

    def __init__(self, message: str = "", *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.source: ModelSource | None = None

    def attribute_to(self, source: ModelSource | None) -> None:
        """Record which account failed, unless that is known already."""
        self.source = self.source or source

    @property
    def for_owner(self) -> str:
        """The cause and the next step, naming provider, address, secret and status where they are known."""
        if self.source is not None:
            return self._explain(self.source)
        return f"{self.public} ({self})" if str(self) else self.public

    def _explain(self, source: ModelSource) -> str:
        return f"{source.title} did not answer{self._http}: {self}"

    @property
    def _http(self) -> str:
        return f" (HTTP {self.status})" if self.status else ""


class ProviderBusy(ProviderError):
    """The provider asked us to wait; the call is repeated after ``retry_after``."""

    public = "The model is busy. Try again in a while."
    passing = True

    def __init__(self, message: str, *, retry_after: timedelta, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after

    def _explain(self, source: ModelSource) -> str:
        seconds = round(self.retry_after.total_seconds())
        when = f"in {seconds:,} s" if seconds else "later"
        return f"The rate limit of {source.title} is reached{self._http}. Try again {when}."


class ProviderOverloaded(ProviderError):
    """The provider failed on its side; the call may be repeated, or another model asked."""

    public = "The model provider is having problems. Try again later."
    passing = True

    def _explain(self, source: ModelSource) -> str:
        return f"{source.title} is having problems{self._http}. Try again later."


class ProviderUnreachable(ProviderError):
    """The network failed, or nothing came for too long; the call may be repeated. ``cause`` is a clause for people."""

    public = "I can't reach the model provider. Try again later."
    passing = True

    def __init__(self, message: str = "", *, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause

    def _explain(self, source: ModelSource) -> str:
        where = f"{source.title} at {source.base_url}"
        address = f"`providers.{source.provider}.base_url`"
        if source.is_local:
            fix = f"Start the server, or correct {address}."
        elif source.is_custom:
            fix = f"Check the network connection and {address}."
        else:
            fix = "Check the network connection."
        return f"I can't reach {where}: {self.cause or self}. {fix}"


class MalformedReply(ProviderError):
    """What came back is not what the protocol says; the call may be repeated."""

    public = "I couldn't read the model's reply. Try again."
    passing = True

    def _explain(self, source: ModelSource) -> str:
        hint = f" Check `providers.{source.provider}.base_url`." if source.is_custom else ""
        return f"I couldn't read the reply of {source.title} at {source.base_url} ({self}).{hint}"


class ReplyTooLong(ProviderError):
    """The provider sent more than one reply may have; asking the same model again is useless."""

    public = "The model's answer was too large to read. Ask for something shorter, or choose another model."


class ContextTooLong(ProviderError):
    """The conversation is longer than the model takes; compact it and repeat the call."""

    public = "This conversation has become too long for the model."

    def _explain(self, source: ModelSource) -> str:
        return (
            f"This conversation is too long for {source.model or source.title}. Start a new one, or use another model."
        )


class BadKey(ProviderError):
    """The provider does not know the key; another key may do."""

    public = "The model provider rejected my API key. My owner needs to fix that."

    def _explain(self, source: ModelSource) -> str:
        if source.secret:
            fix = f"Set a new one: `talaria config set {source.secret} -`."
            return f"{source.title} rejected the API key ({source.secret}). {fix}"
        fix = f"`talaria config set providers.{source.provider}.key NAME` says which secret holds it."
        return f"{source.title} at {source.base_url} requires an API key{self._http}. {fix}"


class NoCredit(ProviderError):
    """The account behind the key has no money left; another key may do."""

    public = "My account with the model provider is out of credit. My owner needs to fix that."

    def _explain(self, source: ModelSource) -> str:
        key = f" ({source.secret})" if source.secret else ""
        return f"The {source.title} account{key} is out of credit{self._http}. Add credit, or use another model."


class ModelUnknown(ProviderError):
    """The provider has no model of this name; another model may do."""

    public = "The model I'm set up to use isn't available. My owner needs to fix that."

    @property
    def for_owner(self) -> str:
        """The model that is missing, and how to choose another."""
        return super().for_owner if self.source is not None else str(self) or self.public

    def _explain(self, source: ModelSource) -> str:
        where = f"{source.title} at {source.base_url}" if source.is_custom or source.is_local else source.title
        if not source.model:
            return f"{where} has no list of models{self._http}."
        return f"{where} has no model named `{source.model}`. `talaria models` lists the available ones."


class ModelRefused(ProviderError):
    """The provider declined this request; repeating it is useless."""

    public = "The model declined to answer that."

    def _explain(self, source: ModelSource) -> str:
        return f"{source.title} declined the request{self._http}: {self}"


class PlatformError(TalariaError):
    """A chat network did not do what was asked."""

    public = "The chat network did not take that."


class Unreachable(PlatformError):
    """The network cannot be reached, or failed on its side; trying again makes sense."""

    public = "I cannot reach the chat network right now."


class SlowDown(PlatformError):
    """The network asked us to wait for ``retry_after``: ``everywhere``, or in this chat alone; ``None`` where it does
    not say.
    """

    public = "The chat network asked me to slow down."

    def __init__(self, message: str, *, retry_after: timedelta, everywhere: bool | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.everywhere = everywhere


class Rejected(PlatformError):
    """The network will never take this: a chat that is gone, a message that it does not allow."""


class BadCredentials(PlatformError):
    """The network does not know the account; its owner has to look after it."""

    public = "My account on the chat network is not valid any more."


class OverBudget(TalariaError):
    """A cap on spending has too little left for what was about to be spent."""

    public = "I have used up what I may spend on this."

    def __init__(self, message: str, *, account: str) -> None:
        super().__init__(message)
        self.account = account


class ToolFailed(TalariaError):
    """A tool could not do what was asked; the model reads the message and adapts."""

    public = "One of my tools failed."
