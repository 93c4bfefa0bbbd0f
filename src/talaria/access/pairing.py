"""Pairing: an unknown sender gets a one-time code, and the owner approves it."""

import hashlib
import secrets

from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.pairing import PairedPerson, PairingRules
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.ids import new_id
from talaria.runtime.cross_posts import CrossPost, send_cross_post

RULES = PairingRules()
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without 0, O, 1 and I, which look alike
_LENGTH = 8
_APPROVED_TEXT = "You've been approved. I'll answer you here from now on."
_SCRYPT = {"n": 2**13, "r": 8, "p": 1}  # about 20 ms per hash, to slow down guessing codes from a stolen store

PAIRING_SALT = NamedValue("pairing_salt", str)
PAIRING_ADDRESS = NamedValue("pairing_address", Address)


def offer_code(
    tx: Transaction, person: PairedPerson, rules: PairingRules = RULES, *, place: Address | None = None
) -> str | None:
    """Return a new code for a sender, or ``None`` if they have a valid one or were rate-limited.

    Only a hash of the code is stored. ``place`` is the chat that is notified when the owner approves the code.
    """
    waiting = [one.user_id for one in tx.pairing.waiting() if one.platform == person.platform]
    if person.user_id in waiting:
        return None
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    if not tx.pairing.offer(person, _hash_code(code, person.platform, _salt(tx)), rules):
        return None
    _save_address(tx, person, place, [*waiting, person.user_id])
    return code


def approve_code(tx: Transaction, platform: str, code: str, rules: PairingRules = RULES) -> PairedPerson | None:
    """Give access to the sender who got this code, and notify them.

    Returns ``None`` for a wrong or expired code, which counts as a failure. Raises `Refused` for malformed codes, and
    while the platform is locked after too many failures.
    """
    person = tx.pairing.approve(platform, _hash_code(_normalize_code(code), platform, _salt(tx)), rules)
    if person is not None:
        _notify(tx, person)
    return person


def render_pairing_text(platform: str, code: str, rules: PairingRules = RULES) -> str:
    """Return the reply to an unknown sender, with the code and how the owner approves it."""
    minutes = int(rules.code_life.total_seconds()) // 60
    return (
        "Hello! I don't know you yet, so I can't talk to you. If you know my owner, send them this code:\n\n"
        f"`{code}`\n\n"
        f"It's valid for {minutes} minutes. They approve you with `talaria pairing approve {platform} {code}`."
    )


def _notify(tx: Transaction, person: PairedPerson) -> None:
    """Notify a sender in their chat, if it is known, that the owner has approved their code."""
    key = _key(person.platform, person.user_id)
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


def _save_address(tx: Transaction, person: PairedPerson, place: Address | None, waiting: list[str]) -> None:
    """Store the chat of a sender while their code is valid, and delete the entries of expired codes."""
    current_keys = {_key(person.platform, one) for one in waiting}
    for key in PAIRING_ADDRESS.keys(tx, _key(person.platform, "")):
        if key not in current_keys:
            PAIRING_ADDRESS.delete(tx, key)
    if place is not None:
        PAIRING_ADDRESS.write(tx, _key(person.platform, person.user_id), place)


def _key(platform: str, user_id: str) -> str:
    return f"{platform}:{user_id}"


def _normalize_code(code: str) -> str:
    normalized = "".join(code.split()).replace("-", "").upper()
    if len(normalized) != _LENGTH or not set(normalized) <= set(_ALPHABET):
        raise Refused(f"`{code}` isn't a valid code. A code has {_LENGTH} letters and digits, never 0, O, 1 or I.")
    return normalized


def _salt(tx: Transaction) -> bytes:
    """Return the salt of this store; created at its first use."""
    salt = PAIRING_SALT.get(tx, SINGLE)
    if salt is None:
        PAIRING_SALT.replace(tx, SINGLE, secrets.token_hex(16), version=0)
        salt = PAIRING_SALT.get(tx, SINGLE)
    assert salt is not None
    return bytes.fromhex(salt)


def _hash_code(code: str, platform: str, salt: bytes) -> str:
    return hashlib.scrypt(f"{platform}:{code}".encode(), salt=salt, **_SCRYPT).hex()
