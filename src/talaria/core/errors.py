"""Errors raised on purpose: one type for each way to react."""

from datetime import timedelta
from typing import ClassVar


class TalariaError(Exception):
    """Raised on purpose. ``str(error)`` is for the owner and the log; a chat may only see ``public``.

    One that is ``passing`` may not come again when the same is asked once more.
    """

    public: ClassVar[str] = "Something went wrong on my side."
    passing: ClassVar[bool] = False


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

    public = "My store cannot be used at the moment. Try again in a while."


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


class StoreCorrupt(StoreError):
    """The file is damaged; `talaria doctor --fix` keeps it aside and recovers what can be read."""


class StoreTooNew(StoreError):
    """A newer Talaria made this store; it was left untouched."""


class LeaseLost(StoreError):
    """Another worker owns this now: what was about to be written must not be."""


class ProviderError(TalariaError):
    """A model could not be asked, or did not answer."""

    public = "The model did not answer."


class ProviderBusy(ProviderError):
    """The provider asked us to wait; the call is repeated after ``retry_after``."""

    public = "The model is busy. Try again in a while."
    passing = True

    def __init__(self, message: str, *, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ProviderOverloaded(ProviderError):
    """The provider failed on its side; the call may be repeated, or another model asked."""

    public = "The model's provider has trouble. Try again in a while."
    passing = True


class ProviderUnreachable(ProviderError):
    """The network failed, or nothing came for too long; the call may be repeated."""

    public = "I cannot reach the model's provider. Try again in a while."
    passing = True


class MalformedReply(ProviderError):
    """What came back is not what the protocol says; the call may be repeated."""

    public = "The model's answer could not be read. Try again."
    passing = True


class ReplyTooLong(ProviderError):
    """The provider sent more than one reply may have; asking the same model again is useless."""

    public = "The model's answer was too large to read. Ask for something shorter, or choose another model."


class ContextTooLong(ProviderError):
    """The conversation is longer than the model takes; compact it and repeat the call."""

    public = "This conversation has become too long for the model."


class BadKey(ProviderError):
    """The provider does not know the key; another key may do."""

    public = "The model's provider refused my key. Its owner has to look after it."


class NoCredit(ProviderError):
    """The account behind the key has no money left; another key may do."""

    public = "The account with the model's provider is used up. Its owner has to look after it."


class ModelUnknown(ProviderError):
    """The provider has no model of this name; another model may do."""

    public = "The chosen model does not exist there."


class ModelRefused(ProviderError):
    """The provider declined this request; repeating it is useless."""

    public = "The model declined to answer that."


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
