"""Pairing: a stranger is given a code, the owner types it, and from then on they may speak."""

import hashlib
import secrets

from talaria.contracts.store import Transaction
from talaria.contracts.stores.pairing import PairingRules, Person
from talaria.core.errors import Refused

RULES = PairingRules()
MOST_WAITING = 50
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # neither 0 and O nor 1 and I, which read alike
_LENGTH = 8
_SALT = "pairing:salt"
_SCRYPT = {"n": 2**13, "r": 8, "p": 1}  # some 20 ms, so that a stolen store does not give its codes away at once


def offer_code(tx: Transaction, person: Person, rules: PairingRules = RULES) -> str | None:
    """Make a code for somebody and return it; ``None`` while they have one, or too many wait on their network.

    The code itself is kept nowhere.
    """
    waiting = [one.user_id for one in tx.pairing.waiting() if one.platform == person.platform]
    if person.user_id in waiting or len(waiting) >= MOST_WAITING:
        return None
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    return code if tx.pairing.offer(person, _hashed(code, person.platform, _salt(tx)), rules) else None


def approve_code(tx: Transaction, platform: str, code: str, rules: PairingRules = RULES) -> Person | None:
    """Let in whoever was given the code; ``None`` for a wrong or old one, which counts as a failure.

    Raises `Refused` for what cannot be a code, and while the platform is locked after too many failures.
    """
    return tx.pairing.approve(platform, _hashed(_read(code), platform, _salt(tx)), rules)


def code_words(platform: str, code: str, rules: PairingRules = RULES) -> str:
    """Return what a stranger is told."""
    minutes = int(rules.code_life.total_seconds()) // 60
    return (
        "Hello! I do not know you yet, so I cannot talk with you. If you know my owner, send them this code:\n\n"
        f"`{code}`\n\n"
        f"It is good for {minutes} minutes. They let you in with `talaria pairing approve {platform} {code}`."
    )


def _read(code: str) -> str:
    read = "".join(code.split()).replace("-", "").upper()
    if len(read) != _LENGTH or not set(read) <= set(_ALPHABET):
        raise Refused(f"`{code}` is no code: it has {_LENGTH} letters and digits, and never 0, O, 1 or I.")
    return read


def _salt(tx: Transaction) -> bytes:
    """Return what makes the hashes of this store differ from those of any other; made at its first use."""
    entry = tx.state.get(_SALT)
    if entry is None:
        tx.state.replace(_SALT, secrets.token_hex(16), version=0)
        entry = tx.state.get(_SALT)
    assert entry is not None
    return bytes.fromhex(entry.value)


def _hashed(code: str, platform: str, salt: bytes) -> str:
    return hashlib.scrypt(f"{platform}:{code}".encode(), salt=salt, **_SCRYPT).hex()
