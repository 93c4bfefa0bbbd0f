"""Errors raised on purpose: one type for each way to react."""

from typing import ClassVar


class TalariaError(Exception):
    """Raised on purpose. ``str(error)`` is for the owner and the log; a chat may only see ``public``."""

    public: ClassVar[str] = "Something went wrong on my side."


class NotFound(TalariaError):
    """What was named does not exist."""

    public = "I could not find that."


class Ambiguous(TalariaError):
    """What was named fits several things; the message lists them."""

    public = "That fits more than one; please be more exact."


class Refused(TalariaError):
    """The request makes no sense in the present state; the message says what to do instead."""

    public = "That is not possible right now."


class StoreError(TalariaError):
    """The store could not do what was asked."""

    public = "My memory is out of reach at the moment. I will try again."


class StoreBusy(StoreError):
    """Another process held the store for too long; trying again makes sense."""


class StoreConflict(StoreError):
    """Two transactions got in each other's way and this one was undone; the store runs it again itself."""


class StoreFull(StoreError):
    """The disk is full: nothing was written, nothing is lost; free some space and try again."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or opened."""


class StoreCorrupt(StoreError):
    """The file is damaged; `talaria doctor --fix` keeps it aside and recovers what can be read."""


class StoreTooNew(StoreError):
    """A newer Talaria made this store; it was left untouched."""


class LeaseLost(StoreError):
    """Another worker owns this now: what was about to be written must not be."""
