"""Web Push (RFC 8030): messages encrypted for one browser (RFC 8291), signed with a key of ours (RFC 8292)."""

import asyncio
import base64
import json
import logging
import os
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from talaria.access.push_subscriptions import PushSubscription, delete_subscription, find_subscriptions
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import Refused, StoreError, TalariaError
from talaria.settings.atomic_files import OWNER_ONLY_FILE
from talaria.web.notifications import NotificationKind, WebNotification

PostRequest = Callable[[str, bytes, Mapping[str, str]], Awaitable[tuple[int, Mapping[str, str]]]]

_RECORD_SIZE = 4096
_LONGEST_TEXT = 500
_SECONDS_TO_LIVE = 86_400
_TOKEN_SECONDS = 12 * 3600
_TITLES: Mapping[NotificationKind, str] = {
    "asked": "Waiting for you",
    "answered": "New answer",
    "delivered": "New message",
    "pairing": "Someone asks for access",
}
_GONE = (404, 410)
_CONTACT = "mailto:push@talaria.invalid"  # push services want an address; nobody reads it

log = logging.getLogger(__name__)


class PushPayload(msgspec.Struct, frozen=True):
    """Payload of a push message, read by the service worker of the page."""

    title: str
    body: str
    path: str
    tag: str


class VapidKey:
    """The key pair that identifies this server to push services, in a file that only its owner can read."""

    def __init__(self, file: Path) -> None:
        self._private = _load_key(file)

    @property
    def public(self) -> str:
        """The public key, as the page needs it."""
        return encode(_point(self._private.public_key()))

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


class PushSender:
    """Sender of notifications to the browsers of a person; ``post`` sends a request and returns the status.

    ``hosts`` are the push services that may be used: names, also of their subdomains.
    """

    def __init__(self, store: Store, key: VapidKey, post: PostRequest, hosts: Callable[[], tuple[str, ...]]) -> None:
        self._store = store
        self._key = key
        self._post = post
        self._hosts = hosts

    @property
    def public_key(self) -> str:
        """The public key of this server."""
        return self._key.public

    def check(self, subscription: PushSubscription) -> None:
        """Raise `Refused` for an endpoint that is no known push service, or for unusable keys."""
        parts = urlsplit(subscription.endpoint)
        host = (parts.hostname or "").lower()
        is_known = any(host == one or host.endswith(f".{one}") for one in self._hosts())
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and host == "127.0.0.1")
        if not is_known or not is_safe:
            raise Refused(f"{host or 'This address'} isn't a known push service. Add it to api.push_hosts.")
        try:
            encrypt(b"", subscription)
        except ValueError as error:
            raise Refused("The keys of this subscription are invalid.") from error

    async def send(self, person: str, notification: WebNotification) -> None:
        """Send a notification to all browsers of a person; failures are logged."""
        try:
            found = await self._store.read(lambda tx: find_subscriptions(tx, person))
        except StoreError as error:
            log.warning("a notification was not sent: %s", error)
            return
        now = datetime.now(UTC)
        due = {browser: one for browser, one in found.items() if not one.is_quiet(now)}
        await asyncio.gather(*(self._send_one(browser, one, notification) for browser, one in due.items()))

    async def _send_one(self, browser: str, subscription: PushSubscription, notification: WebNotification) -> None:
        try:
            self.check(subscription)
            body = encrypt(make_payload(notification, shows_content=subscription.shows_content), subscription)
            headers = {
                "authorization": self._key.authorize(subscription.endpoint, _CONTACT),
                "content-encoding": "aes128gcm",
                "content-type": "application/octet-stream",
                "ttl": str(_SECONDS_TO_LIVE),
                "urgency": "high" if notification.kind == "asked" else "normal",
            }
            status, _ = await self._post(subscription.endpoint, body, headers)
            if status in _GONE:
                await self._store.write(lambda tx: _delete_same(tx, browser, subscription))
            elif not 200 <= status < 300:
                log.warning("a push service answered %s", status)
        except (TalariaError, ValueError) as error:
            log.warning("a notification was not sent: %s", error)


def make_payload(notification: WebNotification, *, shows_content: bool) -> bytes:
    """Return the message for the service worker; without content it only says what kind of news there is."""
    kind = _TITLES[notification.kind]
    title = notification.title if shows_content and notification.title else kind
    body = notification.text[:_LONGEST_TEXT] if shows_content else ""
    text = body or (kind if title != kind else "")
    return msgspec.json.encode(PushPayload(title, text, notification.path, notification.path))


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
    ours = _point(own_key.public_key())
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


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
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


def _delete_same(tx: Transaction, browser: str, subscription: PushSubscription) -> None:
    """Delete a subscription unless the browser has a new one."""
    if find_subscriptions(tx, subscription.person).get(browser) == subscription:
        delete_subscription(tx, browser)
