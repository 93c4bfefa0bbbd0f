"""Browsers signed in to the web app: one-use codes, stored as digests, and their push subscriptions."""

import hashlib
import secrets
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfoNotFoundError

from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.errors import NotFound
from talaria.core.formatting import load_zone
from talaria.core.ids import new_id
from talaria.settings.model import Settings

BROWSERS_TOPIC = "browsers"  # notified when a browser signs in or out
BROWSER_LIFE = timedelta(days=30)  # since its last use
CODE_LIFE = timedelta(minutes=2)
PAIRING_CODE_LIFE = timedelta(minutes=10)  # for a code that a person carries to another device
_TOKEN_BYTES = 32
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without 0, O, 1 and I, which look alike
_CODE_LENGTH, _GROUP = 12, 4  # 60 bits
_LONGEST_LABEL = 80
_SEEN_INTERVAL = timedelta(minutes=10)  # between two writes of the time of the last use


class Browser(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signed-in browser; ``person`` is empty for the owner of the agent, else a name of the settings."""

    id: str
    label: str
    created_at: datetime
    seen_at: datetime
    person: str = ""


class SignInCode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A one-use code for a person, until it expires."""

    expires_at: datetime
    person: str = ""


class WaitingBrowser(Struct, frozen=True, kw_only=True):
    """A browser that shows a pairing code and waits for the owner; ``digest`` is that of its cookie's token."""

    digest: str
    label: str
    expires_at: datetime


_WAITING = NamedValue("web_browser_waiting", WaitingBrowser)  # by the id that the browser will have
_BROWSERS = NamedValue("web_browser", Browser)  # by the digest of the cookie's token
_CODES = NamedValue("web_sign_in_code", SignInCode)  # by the digest of the code


def create_code(tx: Transaction, *, person: str = "", life: timedelta = CODE_LIFE) -> str:
    """Store a new one-use code and return it; expired ones are deleted."""
    now = datetime.now(UTC)
    for digest, stored in _CODES.items(tx).items():
        if stored.expires_at <= now:
            _CODES.delete(tx, digest)
    text = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH))
    _CODES.write(tx, _digest(text), SignInCode(expires_at=now + life, person=person))
    return "-".join(text[start : start + _GROUP] for start in range(0, _CODE_LENGTH, _GROUP))


def sign_in(tx: Transaction, code: str, label: str) -> tuple[Browser, str] | None:
    """Use up a code and return the new browser with the token for its cookie.

    Returns ``None`` for a wrong or expired code.
    """
    digest, now = _digest(_normalize(code)), datetime.now(UTC)
    stored = _CODES.get(tx, digest)
    if stored is None:
        return None
    _CODES.delete(tx, digest)
    if stored.expires_at <= now:
        return None
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return _add_browser(tx, new_id(), _digest(token), clean_label(label), stored.person), token


def add_waiting_browser(tx: Transaction, label: str, life: timedelta) -> tuple[str, str]:
    """Store a browser that waits for the owner; return its id and the token for its cookie, useless until then."""
    now, token, browser_id = datetime.now(UTC), secrets.token_urlsafe(_TOKEN_BYTES), new_id()
    for known_id, stored in _WAITING.items(tx).items():
        if stored.expires_at <= now:
            _WAITING.delete(tx, known_id)
    waiting = WaitingBrowser(digest=_digest(token), label=clean_label(label), expires_at=now + life)
    _WAITING.write(tx, browser_id, waiting)
    return browser_id, token


def admit_browser(tx: Transaction, browser_id: str, person: str = "") -> None:
    """Sign in a browser that waits, for a person; raises `NotFound` if it has given up."""
    waiting = remove_waiting_browser(tx, browser_id)
    if waiting is None or waiting.expires_at <= datetime.now(UTC):
        raise NotFound("This browser no longer waits. Ask for a new code there.")
    _add_browser(tx, browser_id, waiting.digest, waiting.label, person)


def remove_waiting_browser(tx: Transaction, browser_id: str) -> WaitingBrowser | None:
    """Forget a browser that waits, and return it."""
    waiting = _WAITING.get(tx, browser_id)
    _WAITING.delete(tx, browser_id)
    tx.notify(BROWSERS_TOPIC)
    return waiting


def is_waiting(tx: Transaction, digest: str) -> bool:
    """Return whether the browser with this token digest still waits for the owner."""
    now = datetime.now(UTC)
    return any(one.digest == digest and one.expires_at > now for one in _WAITING.items(tx).values())


def resolve_person(settings: Settings, name: str) -> str:
    """Return whose browser it is to be: a name of the settings, or an empty string for the owner.

    Raises `NotFound` for an unknown name.
    """
    name = name.strip()
    if name and name not in settings.people:
        raise NotFound(f"`people` has no `{name}`. Add them to the settings first.")
    return "" if name in settings.access.owners else name


def clean_label(label: str) -> str:
    """Return the name of a browser without what can't be shown."""
    return "".join(one for one in label if one.isprintable())[:_LONGEST_LABEL]


def read_browsers(tx: Transaction) -> dict[str, Browser]:
    """Return the signed-in browsers by the digest of their token, without expired ones."""
    now = datetime.now(UTC)
    return {digest: one for digest, one in _BROWSERS.items(tx).items() if now - one.seen_at < BROWSER_LIFE}


def digest_token(token: str) -> str:
    """Return the digest under which the browser with this token is stored."""
    return _digest(token)


def is_use_recorded(browser: Browser) -> bool:
    """Return whether the last use of a browser was stored recently enough."""
    return datetime.now(UTC) - browser.seen_at < _SEEN_INTERVAL


def record_use(tx: Transaction, digest: str) -> None:
    """Store that a browser is in use, which extends its life."""
    browser = _BROWSERS.get(tx, digest)
    if browser is not None:
        _BROWSERS.write(tx, digest, structs.replace(browser, seen_at=datetime.now(UTC)))


def revoke_browser(tx: Transaction, browser_id: str) -> None:
    """Sign a browser out, or raise `NotFound`; expired browsers are deleted too."""
    now, found = datetime.now(UTC), False
    for digest, browser in _BROWSERS.items(tx).items():
        if browser.id == browser_id or now - browser.seen_at >= BROWSER_LIFE:
            _BROWSERS.delete(tx, digest)
            delete_subscription(tx, browser.id)
            found = found or browser.id == browser_id
    if not found:
        raise NotFound(f"There is no signed-in browser `{browser_id[:32]}`.")
    tx.notify(BROWSERS_TOPIC)


def _add_browser(tx: Transaction, browser_id: str, digest: str, label: str, person: str) -> Browser:
    now = datetime.now(UTC)
    browser = Browser(id=browser_id, label=label, created_at=now, seen_at=now, person=person)
    _BROWSERS.write(tx, digest, browser)
    tx.notify(BROWSERS_TOPIC)
    return browser


def _normalize(code: str) -> str:
    return "".join(one for one in code.upper() if one.isalnum())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class PushSubscription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The address of a browser at its push service, with its keys as base64url; ``person`` is empty for the owner.

    ``shows_content`` sends titles and texts, otherwise only what kind of news there is. ``quiet_from`` and ``quiet_to``
    are local times of ``zone``, as HH:MM, between which nothing is sent; both empty for never.
    """

    endpoint: str
    p256dh: str
    auth: str
    person: str = ""
    shows_content: bool = False
    quiet_from: str = ""
    quiet_to: str = ""
    zone: str = ""

    def is_quiet(self, now: datetime) -> bool:
        """Return whether nothing is sent at this time."""
        if not self.quiet_from or not self.quiet_to:
            return False
        try:
            local = now.astimezone(load_zone(self.zone)) if self.zone else now.astimezone()
        except (ZoneInfoNotFoundError, ValueError):
            local = now.astimezone()
        begin, end = time.fromisoformat(self.quiet_from), time.fromisoformat(self.quiet_to)
        at = local.time()
        return begin <= at < end if begin <= end else at >= begin or at < end


_SUBSCRIPTIONS = NamedValue("web_push", PushSubscription)  # by the id of the browser


def write_subscription(tx: Transaction, browser_id: str, subscription: PushSubscription) -> None:
    """Store the subscription of a browser; another browser's with the same address is removed."""
    for other, known in _SUBSCRIPTIONS.items(tx).items():
        if known.endpoint == subscription.endpoint and other != browser_id:
            _SUBSCRIPTIONS.delete(tx, other)
    _SUBSCRIPTIONS.write(tx, browser_id, subscription)


def read_subscription(tx: Transaction, browser_id: str) -> PushSubscription | None:
    """Return the subscription of a browser."""
    return _SUBSCRIPTIONS.get(tx, browser_id)


def find_subscriptions(tx: Transaction, person: str) -> dict[str, PushSubscription]:
    """Return the subscriptions of a person by browser."""
    return {browser: one for browser, one in _SUBSCRIPTIONS.items(tx).items() if one.person == person}


def delete_subscription(tx: Transaction, browser_id: str) -> bool:
    """Delete the subscription of a browser; ``False`` if it has none."""
    return _SUBSCRIPTIONS.delete(tx, browser_id)
