"""Standing approvals: what a person has allowed for good, as the store keeps it."""

import hashlib

import msgspec

from talaria.agent.approval.grants import Grant
from talaria.contracts.store import Transaction
from talaria.core.errors import NotFound

ALWAYS = "grants"
_ID_LENGTH = 8
encode_grants = msgspec.json.Encoder().encode
decode_grants = msgspec.json.Decoder(list[Grant]).decode


def grant_id(grant: Grant) -> str:
    """Return the short name by which a person takes an approval back."""
    return hashlib.sha256(encode_grants(grant)).hexdigest()[:_ID_LENGTH]


def list_standing_grants(tx: Transaction) -> list[Grant]:
    """Return what is allowed in every conversation, oldest first."""
    entry = tx.state.get(ALWAYS)
    return decode_grants(entry.value) if entry else []


def revoke_standing_grant(tx: Transaction, wanted: str) -> list[Grant]:
    """Take back the approval whose id begins with ``wanted``, or all of them for an empty text; return what is gone."""
    grants = list_standing_grants(tx)
    gone = [grant for grant in grants if grant_id(grant).startswith(wanted.lower())]
    if wanted and len(gone) != 1:
        raise NotFound(f"There is no single approval `{wanted}`. `talaria approvals list` shows them.")
    tx.state.put(ALWAYS, encode_grants([grant for grant in grants if grant not in gone]).decode())
    return gone
