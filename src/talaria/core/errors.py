"""Errors raised on purpose: one type for each way to react."""

from datetime import timedelta
from typing import ClassVar

from msgspec import Struct


class TalariaError(Exception):
    """An error raised on purpose. ``str(error)`` is for the log; chats see ``public``, the owner ``for_owner``.

    If ``passing``, the same request may succeed when repeated.
    """

    public: ClassVar[str] = "Something went wrong on my side."
    passing: ClassVar[bool] = False

    @property
    def for_owner(self) -> str:
        """Return the cause and the next step, for the owner's terminal."""
        return str(self) or self.public


class NotFound(TalariaError):
    """The named thing does not exist."""

    public = "I couldn't find that."


class Ambiguous(TalariaError):
    """The name matches several things; the message lists them."""

    public = "That matches more than one. Please be more specific."


class Refused(TalariaError):
    """The request is invalid in the current state; the message says what to do instead."""

    public = "That isn't possible right now."


class Busy(Refused):
    """Another worker or turn is using it; the request may be repeated when that is done."""


class StoreError(TalariaError):
    """The store failed to carry out an operation."""

    public = "I can't reach my database right now. Try again in a moment."


class StoreBusy(StoreError):
    """Another process held the store for too long; the operation may be repeated."""


class StoreConflict(StoreError):
    """Two transactions conflicted and this one was rolled back; the store repeats it by itself."""


class StoreFull(StoreError):
    """The disk is full: nothing was written, nothing is lost; free some space and try again."""


class StoreUnavailable(StoreError):
    """The store can't be reached or opened."""


class StoreGone(StoreUnavailable):
    """The database file was deleted, moved or replaced while in use; writes to it would be lost."""


class StoreMissing(StoreUnavailable):
    """The database file is missing or empty although a store existed; no new one is created in its place."""


class StoreCorrupt(StoreError):
    """The database file is damaged; `talaria doctor --fix` sets it aside and recovers what can be read."""


class StoreTooNew(StoreError):
    """A newer version of Talaria created this store; it was left untouched."""


class UnreadableValue(TalariaError):
    """A stored value can't be decoded, for example because another version of Talaria wrote it."""


class LeaseLost(StoreError):
    """Another worker owns this now; the pending write must not happen."""


_OTHER_MODEL = "use another model: `talaria model`"


class ModelSource(Struct, frozen=True, kw_only=True):
    """The provider account that an error came from; ``secret`` names its API key, empty if none was sent.

    ``login`` is the name of the sign-in that was used in place of a key, ``url_variable`` the environment variable that
    the URL comes from, if it does.
    """

    provider: str
    title: str
    base_url: str
    secret: str = ""
    is_local: bool = False
    is_custom: bool = False
    model: str = ""
    login: str = ""
    url_variable: str = ""

    @property
    def address_setting(self) -> str:
        """Return what to change for another URL: a variable or a setting."""
        return self.url_variable or f"`providers.{self.provider}.base_url`"

    @property
    def where(self) -> str:
        """Return the provider and its URL."""
        return f"{self.title} at {self.base_url}" if self.base_url else self.title

    @property
    def with_key(self) -> str:
        """Return the name of the key or sign-in that was used, as a part of a sentence; empty without one."""
        if self.login:
            return f" with the sign-in `{self.login}`"
        return f" with the key {self.secret}" if self.secret else ""


class ProviderError(TalariaError):
    """A model call failed.

    ``status`` is the HTTP status, if there was one; ``source`` is set by the adapter that raised the error.
    """

    public = "The model didn't answer."

    def __init__(self, message: str = "", *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.source: ModelSource | None = None

    def attribute_to(self, source: ModelSource | None) -> None:
        """Record which account failed, unless it is already known."""
        self.source = self.source or source

    @property
    def for_owner(self) -> str:
        """Return the cause and the next step, naming provider, URL, secret and status where known."""
        if self.source is not None:
            return self._explain(self.source)
        return f"{self.public} ({self})" if str(self) else self.public

    def _explain(self, source: ModelSource) -> str:
        return f"{source.where} didn't answer{self._http}: {self}"

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
        used = source.with_key
        return f"{source.where} has reached its rate limit{used}{self._http}. Try again {when}, or {_OTHER_MODEL}."


class ProviderOverloaded(ProviderError):
    """The provider failed on its side; the call may be repeated, or sent to another model."""

    public = "The model provider is having problems. Try again later."
    passing = True

    def _explain(self, source: ModelSource) -> str:
        return f"{source.where} is having problems{self._http}. Try again later, or {_OTHER_MODEL}."


class ProviderUnreachable(ProviderError):
    """The network failed or timed out; the call may be repeated.

    ``cause`` is a clause for people, and ``remedy`` a sentence with what may help, if the cause suggests it.
    """

    public = "I can't reach the model provider. Try again later."
    passing = True

    def __init__(self, message: str = "", *, cause: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.cause = cause
        self.remedy = remedy

    def _explain(self, source: ModelSource) -> str:
        if self.remedy:
            fix = self.remedy
        elif source.is_local:
            fix = f"Start the server, or correct {source.address_setting}."
        elif source.is_custom or source.url_variable:
            fix = f"Check the network connection and {source.address_setting}."
        else:
            fix = "Check the network connection; `talaria doctor` tests it."
        return f"I can't reach {source.where}: {self.cause or self}. {fix}"


class MalformedReply(ProviderError):
    """The reply violates the protocol; the call may be repeated."""

    public = "I couldn't read the model's reply. Try again."
    passing = True

    def _explain(self, source: ModelSource) -> str:
        hint = f" Check {source.address_setting}." if source.is_custom or source.url_variable else ""
        return f"I couldn't read the reply from {source.where} ({self}).{hint}"


class ReplyTooLong(ProviderError):
    """The reply exceeds the size limit; repeating the call with the same model is useless."""

    public = "The model's answer was too large to read. Ask for something shorter, or choose another model."


class ContextTooLong(ProviderError):
    """The conversation exceeds the model's context; compact it and repeat the call."""

    public = "This conversation is too long for the model. Start a new one with `/new`, or shorten it with `/compress`."

    def _explain(self, source: ModelSource) -> str:
        return (
            f"This conversation is too long for {source.model or source.title}. Start a new one, or use another model."
        )


class BadKey(ProviderError):
    """The provider rejected the key; another key may work."""

    public = "The model provider rejected my API key. My owner needs to fix that."

    def _explain(self, source: ModelSource) -> str:
        if source.login:
            fix = f"Sign in again with `talaria login {source.login}`."
            return f"{source.where} rejected the sign-in{self._http}. {fix}"
        if source.secret and self.status == 403:
            fix = f"Check what the account allows, or set another key: `talaria config set {source.secret} -`."
            return f"{source.where} refuses access{source.with_key}{self._http}. {fix}"
        if source.secret:
            fix = f"Set a new one: `talaria config set {source.secret} -`."
            return f"{source.where} rejected the API key {source.secret}{self._http}. {fix}"
        fix = f"Name the secret that holds it: `talaria config set providers.{source.provider}.key NAME`."
        return f"{source.where} requires an API key{self._http}. {fix}"


class SignInNeeded(BadKey):
    """The sign-in that stands in for a key is missing, has expired or was revoked; the owner signs in again."""

    public = "My sign-in with the model provider has expired. My owner needs to fix that."

    def _explain(self, source: ModelSource) -> str:
        return str(self)


class NoCredit(ProviderError):
    """The account of the key has no credit left; another key may work."""

    public = "My account with the model provider is out of credit. My owner needs to fix that."

    def _explain(self, source: ModelSource) -> str:
        account = f"The account of {source.where}{source.with_key}"
        return f"{account} is out of credit{self._http}. Add credit there, or {_OTHER_MODEL}."


class ModelUnknown(ProviderError):
    """The provider has no model with this name; another model may work."""

    public = "The model I'm set up to use isn't available. My owner needs to fix that."

    @property
    def for_owner(self) -> str:
        """Return the missing model, and how to choose another."""
        return super().for_owner if self.source is not None else str(self) or self.public

    def _explain(self, source: ModelSource) -> str:
        if not source.model:
            return f"{source.where} doesn't list its models{self._http}."
        missing = f"{source.where} has no model named `{source.model}`{self._http}"
        return f"{missing}. `talaria models` lists the available ones, `talaria model NAME` chooses one."


class WrongProtocol(ModelUnknown):
    """The provider has this model, but only over another protocol."""


class ModelRefused(ProviderError):
    """The provider declined this request; repeating it is useless."""

    public = "The model declined to answer that."

    def _explain(self, source: ModelSource) -> str:
        return f"{source.where} declined the request{self._http}: {self}"


class PlatformError(TalariaError):
    """A chat network failed to carry out an operation."""

    public = "The chat network rejected that."


class Unreachable(PlatformError):
    """The network can't be reached, or failed on its side; the operation may be repeated."""

    public = "I can't reach the chat network right now."


class SlowDown(PlatformError):
    """The network asked us to wait for ``retry_after``, ``everywhere`` or only in this chat; ``None`` if it gave no
    time.
    """

    public = "The chat network asked me to slow down."

    def __init__(self, message: str, *, retry_after: timedelta, everywhere: bool | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.everywhere = everywhere


class Rejected(PlatformError):
    """The network will never accept this, for example because the chat is gone or the message is not allowed."""


class BadCredentials(PlatformError):
    """The network rejected the account; its owner has to fix it."""

    public = "My account on the chat network is no longer valid. My owner needs to fix that."


class OverBudget(TalariaError):
    """A spending cap has too little left for the pending expense."""

    public = "I've reached the spending limit for this."

    def __init__(self, message: str, *, account: str) -> None:
        super().__init__(message)
        self.account = account


class PriceUnknown(OverBudget):
    """A cap on spending is set, and the price of the model isn't known, so the cap can't be enforced."""

    public = "I have a spending limit, and the price of my model isn't known. My owner needs to set it."

    def __init__(self, model: str) -> None:
        super().__init__(f"the price of {model} is unknown", account="")
        self.model = model

    @property
    def for_owner(self) -> str:
        """Return how to set the price."""
        key = f"models.{_quote_key(self.model)}"
        return (
            f"A spending limit is set, but the price of `{self.model}` is unknown, so it can't be enforced. Set the"
            f" price in dollars per million tokens: `talaria config set {key}.input_price PRICE` and"
            f" `talaria config set {key}.output_price PRICE` (0 if it is free)."
        )


def _quote_key(name: str) -> str:
    """Return a name as part of a settings key, for a shell."""
    return name if name.replace("-", "").replace("_", "").isalnum() else f"'\"{name}\"'"


class ToolFailed(TalariaError):
    """A tool could not do what was asked; the model reads the message and adapts."""

    public = "One of my tools failed."
