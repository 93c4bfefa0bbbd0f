"""Web Push: messages encrypted for one browser (RFC 8291), signed with a key of ours (RFC 8292)."""

import base64
import json
import os
import struct
import time
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from talaria.access.browsers import PushSubscription
from talaria.core.errors import Refused
from talaria.settings.atomic_files import OWNER_ONLY_FILE

_RECORD_SIZE = 4096
_TOKEN_SECONDS = 12 * 3600


class VapidKey:
    """The key pair that identifies this server to push services, in a file that only its owner can read."""

    def __init__(self, file: Path) -> None:
        self._private = _load_key(file)

    @property
    def public(self) -> str:
        """The public key, as the page needs it."""
        return encode(_encode_point(self._private.public_key()))

    def authorize(self, endpoint: str, contact: str) -> str:
        """Return the authorization header for an endpoint; ``contact`` is a `mailto:` or `https:` address of ours."""
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(time.time()) + _TOKEN_SECONDS,
            "sub": contact,
        }
        head = encode(json.dumps({"typ": "JWT", "alg": "ES256"}).encode())
        signed = f"{head}.{encode(json.dumps(claims).encode())}"
        first, second = decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = encode(first.to_bytes(32, "big") + second.to_bytes(32, "big"))
        return f"vapid t={signed}.{signature}, k={self.public}"


def encrypt(
    plain: bytes,
    subscription: PushSubscription,
    *,
    salt: bytes | None = None,
    own_key: ec.EllipticCurvePrivateKey | None = None,
) -> bytes:
    """Return a message encrypted for a browser, as one record of `aes128gcm`; raises `ValueError` for invalid keys.

    ``salt`` and ``own_key`` are new for each message, unless a test gives them.
    """
    salt, own_key = salt or os.urandom(16), own_key or ec.generate_private_key(ec.SECP256R1())
    theirs, secret = decode(subscription.p256dh), decode(subscription.auth)
    receiver = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)
    if len(secret) != 16:
        raise ValueError("the authentication secret has 16 bytes")
    ours = _encode_point(own_key.public_key())
    shared = own_key.exchange(ec.ECDH(), receiver)
    keying = _derive(secret, shared, b"WebPush: info\0" + theirs + ours, 32)
    content_key = _derive(salt, keying, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, keying, b"Content-Encoding: nonce\0", 12)
    sealed = AESGCM(content_key).encrypt(nonce, plain + b"\x02", None)
    return salt + struct.pack("!IB", _RECORD_SIZE, len(ours)) + ours + sealed


def encode(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    """Return the bytes of base64url; raises `ValueError`."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _derive(salt: bytes, key: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(key)


def _encode_point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _load_key(file: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key of a file, which is created if it is missing."""
    if not file.exists():
        new = ec.generate_private_key(ec.SECP256R1())
        text = new.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        partial = file.with_suffix(".part")
        partial.touch(OWNER_ONLY_FILE)
        partial.write_bytes(text)
        partial.replace(file)
    loaded = serialization.load_pem_private_key(file.read_bytes(), None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise Refused(f"{file} has no key for push messages. Delete it; browsers then have to subscribe again.")
    return loaded
