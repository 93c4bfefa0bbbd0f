"""Requests that come again: the first answer is kept, and is the answer to all of them."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.api.problems import Problem, conflict
from talaria.contracts.store import Store
from talaria.core.ids import WorkerId, is_gone

HEADER = "idempotency-key"
_LIFE = timedelta(hours=24)
_LONGEST = 255
_MOST_BYTES = 4_000_000

_encode = msgspec.json.Encoder().encode


class KeptReply(Struct, frozen=True):
    """A reply as it went out."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes


_decode = msgspec.json.Decoder(KeptReply).decode


class Repetitions:
    """Recognises requests by the key that their client chose, each caller's apart from all others'."""

    def __init__(self, store: Store, worker: WorkerId) -> None:
        self._store = store
        self._worker = worker

    async def begin(self, key: str, caller: str, method: str, path: str, body: bytes) -> KeptReply | None:
        """Return the first answer, or ``None`` where this is the first request: `end` keeps what it is answered with.

        Raises a `Problem` for a key that stands for something else, and while the first request is being answered. One
        whose server was killed counts as never made.
        """
        if not 0 < len(key) <= _LONGEST:
            raise Problem(f"An Idempotency-Key has 1 to {_LONGEST} characters.", code="invalid_idempotency_key")
        digest = hashlib.sha256(b"\n".join((method.encode(), path.encode(), body))).hexdigest()
        reserved, stored = f"{digest} {self._worker}", _stored_key(caller, key)
        found = await self._store.write(lambda tx: tx.responses.begin_request(stored, reserved, _LIFE))
        if found is not None and found.answer is None and is_gone(_worker(found.fingerprint)):
            dead = found.fingerprint
            found = await self._store.write(
                lambda tx: tx.responses.begin_request(stored, reserved, _LIFE, instead_of=dead)
            )
        if found is None:
            return None
        if found.fingerprint.partition(" ")[0] != digest:
            raise Problem("This Idempotency-Key stands for another request.", 422, code="idempotency_key_reused")
        if found.answer is None:
            raise conflict("The first request with this Idempotency-Key is still being answered.", code="in_progress")
        return _decode(found.answer)

    async def end(self, key: str, caller: str, reply: KeptReply) -> None:
        """Keep an answer for a day."""
        if len(reply.body) > _MOST_BYTES:
            sentence = b"The first answer was too long to be kept."
            reply = KeptReply(500, "text/plain; charset=utf-8", {}, sentence)
        answer = _encode(reply).decode()
        await self._store.write(lambda tx: tx.responses.end_request(_stored_key(caller, key), answer))


def _stored_key(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\n{key}".encode("utf-8", "surrogateescape")).hexdigest()


def _worker(fingerprint: str) -> WorkerId:
    return WorkerId(fingerprint.partition(" ")[2])
