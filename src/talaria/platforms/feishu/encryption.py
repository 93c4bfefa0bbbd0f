"""Proof and encryption of what Feishu posts: a signature over the body, and AES-256 in CBC mode."""

import base64
import hashlib
import hmac
from datetime import datetime

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from msgspec import Struct

from talaria.platforms.push_receiver import PushRequest
from talaria.platforms.signatures import BadSignature, check_signatures, check_timestamp

_BLOCK = 16  # bytes


class _Encrypted(Struct):
    encrypt: str


def sign_body(timestamp: str, nonce: str, encrypt_key: str, body: bytes) -> str:
    """Return the signature of a post."""
    return hashlib.sha256(f"{timestamp}{nonce}{encrypt_key}".encode(errors="replace") + body).hexdigest()


def check_post(request: PushRequest, body: bytes, encrypt_key: str, now: datetime) -> None:
    """Raise `BadSignature` unless the sender has the key and the post is new."""
    timestamp = request.headers.get("x-lark-request-timestamp", "")
    nonce = request.headers.get("x-lark-request-nonce", "")
    check_signatures(sign_body(timestamp, nonce, encrypt_key, body), [request.headers.get("x-lark-signature", "")])
    check_timestamp(timestamp, now)


def check_token(given: str, expected: str) -> None:
    """Raise `BadSignature` unless the verification token is ours."""
    if not hmac.compare_digest(given.encode(errors="replace"), expected.encode()):
        raise BadSignature("the verification token is another one")


def decrypt_body(body: bytes, encrypt_key: str) -> bytes:
    """Return the content of an encrypted post; raises `ValueError` if it isn't encrypted with this key."""
    data = base64.b64decode(msgspec.json.decode(body, type=_Encrypted).encrypt, validate=True)
    if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
        raise ValueError("the encrypted post is cut off")
    cipher = Cipher(algorithms.AES(hashlib.sha256(encrypt_key.encode()).digest()), modes.CBC(data[:_BLOCK]))
    decryptor, unpadder = cipher.decryptor(), PKCS7(8 * _BLOCK).unpadder()
    return unpadder.update(decryptor.update(data[_BLOCK:]) + decryptor.finalize()) + unpadder.finalize()
