"""Pairing: an unknown sender or browser gets a one-time code, and the owner approves it."""

import hashlib
import secrets

from talaria.access.browsers import add_waiting_browser, admit_browser, clean_label, remove_waiting_browser
from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.access import PairedPerson, PairingRules
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import NotFound, Refused
from talaria.core.ids import new_id
from talaria.runtime.cross_posts import CrossPost, send_cross_post

RULES = PairingRules()
WEB = "web"  # the platform of browsers
PAIRING_TOPIC = "pairing"  # notified when a request arrives or is answered
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without 0, O, 1 and I, which look alike
_LENGTH = 8
_APPROVED_TEXT = "You've been approved. I'll answer you here from now on."
_SCRYPT = {"n": 2**13, "r": 8, "p": 1}  # about 20 ms per hash, to slow down guessing codes from a stolen store

PAIRING_SALT = NamedValue("pairing_salt", str)
PAIRING_ADDRESS = NamedValue("pairing_address", Address)


def offer_code(
    tx: Transaction, person: PairedPerson, rules: PairingRules = RULES, *, address: Address | None = None
) -> str | None:
    """Return a new code for a sender, or ``None`` if they have a valid one or were rate-limited.

    Only a hash of the code is stored. ``address`` is the chat that is notified when the owner approves the code.
    """
    waiting = [one.user_id for one in tx.pairing.waiting() if one.platform == person.platform]
    if person.user_id in waiting:
        return None
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    if not tx.pairing.offer(person, _hash_code(code, person.platform, _ensure_salt(tx)), rules):
        return None
    _save_address(tx, person, address, [*waiting, person.user_id])
    tx.notify(PAIRING_TOPIC)
    return code


def offer_browser_code(tx: Transaction, label: str, rules: PairingRules = RULES) -> tuple[str, str] | None:
    """Return a code for a browser to show, and the token for its cookie; ``None`` if too many browsers asked.

    The token signs the browser in once the owner has approved the code.
    """
    browser_id, token = add_waiting_browser(tx, label, rules.code_life)
    code = offer_code(tx, PairedPerson(WEB, browser_id, clean_label(label)), rules)
    if code is None:
        remove_waiting_browser(tx, browser_id)
        return None
    return code, token


def approve_code(
    tx: Transaction, platform: str, code: str, rules: PairingRules = RULES, *, person: str = ""
) -> PairedPerson | None:
    """Give access to the sender or browser that got this code, and notify them.

    A browser is signed in as ``person``, a name of the settings; empty for the owner. Returns ``None`` for a wrong or
    expired code, which counts as a failure. Raises `Refused` for malformed codes, and while the platform is locked
    after too many failures.
    """
    found = tx.pairing.approve(platform, _hash_code(_normalize_code(code), platform, _ensure_salt(tx)), rules)
    if found is not None:
        _complete(tx, found, person)
    return found


def approve_request(tx: Transaction, platform: str, user_id: str) -> PairedPerson:
    """Give access to a sender without their code, and notify them; raises `NotFound` without a valid request.

    A browser needs its code: of several that ask at once, only the code tells which one the owner is looking at.
    """
    if platform == WEB:
        raise Refused("To approve a browser, type the code that it shows.")
    found = tx.pairing.admit(platform, user_id)
    if found is None:
        raise NotFound(f"There is no pairing request of `{user_id[:64]}` on {platform}. It may have expired.")
    _complete(tx, found, "")
    return found


def refuse_request(tx: Transaction, platform: str, user_id: str) -> None:
    """Delete a pairing request, whose code is void from then on; raises `NotFound` if there is none."""
    if not tx.pairing.refuse(platform, user_id):
        raise NotFound(f"There is no pairing request of `{user_id[:64]}` on {platform}. It may have expired.")
    if platform == WEB:
        remove_waiting_browser(tx, user_id)
    PAIRING_ADDRESS.delete(tx, _build_key(platform, user_id))
    tx.notify(PAIRING_TOPIC)


def render_pairing_text(platform: str, code: str, rules: PairingRules = RULES) -> str:
    """Return the reply to an unknown sender, with the code and how the owner approves it."""
    minutes = int(rules.code_life.total_seconds()) // 60
    return (
        "Hello! I don't know you yet, so I can't talk to you. If you know my owner, send them this code:\n\n"
        f"`{code}`\n\n"
        f"It's valid for {minutes} minutes. They approve you with `talaria pairing approve {platform} {code}`."
    )


def _complete(tx: Transaction, found: PairedPerson, person: str) -> None:
    """Sign in a browser that was approved, or notify a sender in their chat."""
    if found.platform == WEB:
        tx.pairing.revoke(WEB, found.user_id)  # it is known as a browser from now on
        admit_browser(tx, found.user_id, person)
    else:
        _notify(tx, found)
    tx.notify(PAIRING_TOPIC)


def _notify(tx: Transaction, person: PairedPerson) -> None:
    """Notify a sender in their chat, if it is known, that the owner has approved their code."""
    key = _build_key(person.platform, person.user_id)
    address = PAIRING_ADDRESS.get(tx, key)
    if address is None:
        return
    PAIRING_ADDRESS.delete(tx, key)
    cross_post = CrossPost(
        key=f"paired:{new_id()}",
        address=address,
        content=Content(text=_APPROVED_TEXT),
        source="the owner",
        at=SystemClock().now(),
    )
    send_cross_post(tx, cross_post)


def _save_address(tx: Transaction, person: PairedPerson, address: Address | None, waiting: list[str]) -> None:
    """Store the chat of a sender while their code is valid, and delete the entries of expired codes."""
    current_keys = {_build_key(person.platform, one) for one in waiting}
    for key in PAIRING_ADDRESS.keys(tx, _build_key(person.platform, "")):
        if key not in current_keys:
            PAIRING_ADDRESS.delete(tx, key)
    if address is not None:
        PAIRING_ADDRESS.write(tx, _build_key(person.platform, person.user_id), address)


def _build_key(platform: str, user_id: str) -> str:
    return f"{platform}:{user_id}"


def _normalize_code(code: str) -> str:
    normalized = "".join(code.split()).replace("-", "").upper()
    if len(normalized) != _LENGTH or not set(normalized) <= set(_ALPHABET):
        raise Refused(f"`{code}` isn't a valid code. A code has {_LENGTH} letters and digits, never 0, O, 1 or I.")
    return normalized


def _ensure_salt(tx: Transaction) -> bytes:
    """Return the salt of this store; created at its first use."""
    salt = PAIRING_SALT.get(tx, SINGLE)
    if salt is None:
        PAIRING_SALT.replace(tx, SINGLE, secrets.token_hex(16), version=0)
        salt = PAIRING_SALT.get(tx, SINGLE)
    assert salt is not None
    return bytes.fromhex(salt)


def _hash_code(code: str, platform: str, salt: bytes) -> str:
    return hashlib.scrypt(f"{platform}:{code}".encode(), salt=salt, **_SCRYPT).hex()
