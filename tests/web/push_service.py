"""A local push service: it checks headers and tokens strictly, and decrypts messages as a browser does."""

import base64
import json
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def _hmac(key: bytes, data: bytes) -> bytes:
    digest = hmac.HMAC(key, hashes.SHA256())
    digest.update(data)
    return digest.finalize()


@dataclass
class Device:
    """A browser's side of a subscription: its keys, and how it reads a message (RFC 8291, by HMAC alone)."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    secret: bytes = b"0123456789abcdef"

    @property
    def point(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def keys(self) -> dict[str, str]:
        return {"p256dh": encode(self.point), "auth": encode(self.secret)}

    def read(self, body: bytes) -> bytes:
        salt, (size, length) = body[:16], struct.unpack("!IB", body[16:21])
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(sealed) <= size
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        keying = _hmac(_hmac(self.secret, shared), b"WebPush: info\0" + self.point + sender + b"\x01")
        extracted = _hmac(salt, keying)
        content_key = _hmac(extracted, b"Content-Encoding: aes128gcm\0\x01")[:16]
        nonce = _hmac(extracted, b"Content-Encoding: nonce\0\x01")[:12]
        plain = AESGCM(content_key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert plain.endswith(b"\x02")
        return plain[:-1]


@dataclass
class PushService:
    """``messages`` arrived for the device; ``status`` is the response, ``refusals`` has reasons for refused ones."""

    device: Device = field(default_factory=Device)
    url: str = ""
    status: int = 201
    messages: list[Any] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def subscription(self, **options: Any) -> dict[str, Any]:
        return {"endpoint": f"{self.url}/push/one", **self.device.keys(), **options}

    async def receive(self, request: web.Request) -> web.Response:
        try:
            self._check(request)
            body = await request.read()
            assert len(body) <= 4096 + 86
            self.messages.append(json.loads(self.device.read(body)))
        except AssertionError as error:
            self.refusals.append(str(error) or "refused")
            return web.Response(status=400)
        return web.Response(status=self.status)

    def _check(self, request: web.Request) -> None:
        headers = request.headers
        assert headers["content-encoding"] == "aes128gcm"
        assert int(headers["ttl"]) >= 0
        assert headers["urgency"] in ("very-low", "low", "normal", "high")
        scheme, _, rest = headers["authorization"].partition(" ")
        assert scheme == "vapid"
        fields = dict(one.strip().split("=", 1) for one in rest.split(","))
        signed, _, signature = fields["t"].rpartition(".")
        head, claims = (json.loads(decode(one)) for one in signed.split("."))
        assert head == {"typ": "JWT", "alg": "ES256"}
        assert claims["aud"] == self.url, claims
        assert time.time() < claims["exp"] <= time.time() + 86_400
        assert claims["sub"].startswith(("mailto:", "https:"))
        raw = decode(signature)
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(fields["k"]))
        encoded = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        key.verify(encoded, signed.encode(), ec.ECDSA(hashes.SHA256()))


@asynccontextmanager
async def push_service() -> AsyncIterator[PushService]:
    service = PushService()
    application = web.Application()
    application.router.add_post("/push/one", service.receive)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield service
    finally:
        await runner.cleanup()
