"""Access to models at AWS: requests signed with Signature Version 4."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock


class AwsCredentials(Struct, frozen=True):
    """A key of an AWS account; ``session_token`` is set for a temporary one."""

    access_key: str
    secret_key: str
    session_token: str = ""


class AwsSigner:
    """Signs requests to an AWS service in one region, with Signature Version 4."""

    def __init__(
        self, credentials: AwsCredentials, region: str, service: str = "bedrock", clock: Clock | None = None
    ) -> None:
        self._credentials = credentials
        self._region = region
        self._service = service
        self._clock = clock or SystemClock()

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers for one request."""
        now = self._clock.now()
        signed = {"host": urlsplit(url).netloc, "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
        if self._credentials.session_token:
            signed["x-amz-security-token"] = self._credentials.session_token
        names = ";".join(sorted(signed))
        scope = f"{now:%Y%m%d}/{self._region}/{self._service}/aws4_request"
        canonical = "\n".join(
            (
                method,
                _canonicalize_path(url),
                _canonicalize_query(url),
                *(f"{name}:{signed[name]}" for name in sorted(signed)),
                "",
                names,
                hashlib.sha256(body).hexdigest(),
            )
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{signed['x-amz-date']}\n{scope}\n{digest}"
        signature = hmac.new(self._derive_key(now), text.encode(), hashlib.sha256).hexdigest()
        proof = f"Credential={self._credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {
            **{name: value for name, value in signed.items() if name != "host"},
            "Authorization": f"AWS4-HMAC-SHA256 {proof}",
        }

    async def renew(self, headers: Mapping[str, str]) -> bool:
        """Return false: a signature is made for each request."""
        return False

    def _derive_key(self, now: datetime) -> bytes:
        key = f"AWS4{self._credentials.secret_key}".encode()
        for part in (f"{now:%Y%m%d}", self._region, self._service, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key


def _canonicalize_path(url: str) -> str:
    """Return the path as AWS signs it: every part encoded twice."""
    return quote(urlsplit(url).path or "/", safe="/~")


def _canonicalize_query(url: str) -> str:
    pairs = (pair.partition("=") for pair in urlsplit(url).query.split("&") if pair)
    encoded = ((quote(unquote(name), safe="~"), quote(unquote(value), safe="~")) for name, _, value in pairs)
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))
