"""Access to models in clouds: signatures as the official signer makes them, tokens by the documented flows."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.providers.random_histories import request
from tests.providers.scripted_providers import collect_reply, pool

from talaria.app.configured_providers import ConfiguredProviders
from talaria.core.errors import BadKey, Refused
from talaria.http_client.bearer_tokens import GOOGLE_CLOUD_SCOPE, BearerToken, EntraTokenRequest, GoogleTokenRequest
from talaria.providers.aws_signer import AwsCredentials, AwsSigner
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
from talaria.settings.sections.providers import ProviderAccount
from talaria.testing.model_server import ModelServer

Form = dict[str, str]
HOST = "https://bedrock-runtime.eu-central-1.amazonaws.com"
URLS = [
    f"{HOST}/openai/v1/chat/completions",
    f"{HOST}/model/anthropic.claude-sonnet-5-5%3A0/converse",
    f"{HOST}/model/arn%3Aaws%3Abedrock%3Aeu%3A1%3Aprofile%2Fmy~model/invoke",
    f"{HOST}/models?limit=10&after=a%20b&after=A",
    f"{HOST}",
]


class FixedClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def move(self, by: timedelta) -> None:
        self._now += by


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(("method", "body"), [("POST", b'{"model":"\xc3\xa9"}'), ("GET", b"")])
@pytest.mark.parametrize("token", ["", "temporary/+=="])
async def test_requests_are_signed_as_by_the_official_signer(url: str, method: str, body: bytes, token: str) -> None:
    theirs = AWSRequest(method=method, url=url, data=body)
    SigV4Auth(Credentials("AKID", "secret/+key", token or None), "bedrock", "eu-central-1").add_auth(theirs)
    signed_at = datetime.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    signer = AwsSigner(AwsCredentials("AKID", "secret/+key", token), "eu-central-1", clock=FixedClock(signed_at))
    ours = await signer.headers(method, url, body)
    assert ours["Authorization"] == theirs.headers["Authorization"]
    assert ours.get("x-amz-security-token", "") == token


@asynccontextmanager
async def authority(answer: Callable[[Form], tuple[int, object]]) -> AsyncIterator[tuple[str, list[Form]]]:
    """Serve a token endpoint; yields its address and the forms that it received."""
    received: list[Form] = []

    async def grant(call: web.Request) -> web.Response:
        assert call.content_type == "application/x-www-form-urlencoded"
        received.append({name: str(value) for name, value in (await call.post()).items()})
        status, body = answer(received[-1])
        return web.json_response(body, status=status)

    application = web.Application()
    application.router.add_post("/{path:.*}", grant)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", received
    finally:
        await runner.cleanup()


async def test_an_entra_token_is_requested_once_and_renewed_before_it_expires() -> None:
    clock = FixedClock(datetime(2026, 11, 17, tzinfo=UTC))
    numbers = iter(range(10))
    granted = lambda _: (200, {"access_token": f"token-{next(numbers)}", "expires_in": 3600, "token_type": "Bearer"})  # noqa: E731
    async with authority(granted) as (url, received), pool() as http:
        token = BearerToken(EntraTokenRequest("tenant", "client", "secret", url), http, clock)
        assert (await token.headers("POST", "https://x", b""))["Authorization"] == "Bearer token-0"
        clock.move(timedelta(minutes=57))
        assert (await token.headers("POST", "https://x", b""))["Authorization"] == "Bearer token-0"
        clock.move(timedelta(minutes=2))
        assert (await token.headers("POST", "https://x", b""))["Authorization"] == "Bearer token-1"
    assert received[0] == {
        "grant_type": "client_credentials",
        "client_id": "client",
        "client_secret": "secret",
        "scope": "https://cognitiveservices.azure.com/.default",
    }


async def test_refused_sign_in_error_has_the_reason() -> None:
    refusal = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
    async with authority(lambda _: (401, refusal)) as (url, _), pool() as http:
        token = BearerToken(EntraTokenRequest("tenant", "client", "wrong", url), http)
        with pytest.raises(BadKey, match="AADSTS7000215"):
            await token.headers("POST", "https://x", b"")


async def test_a_service_account_signs_a_claim_that_google_can_verify(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    claims = []

    def grant(form: Form) -> tuple[int, object]:
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        claims.append(jwt.decode(form["assertion"], key.public_key(), algorithms=["RS256"], audience=address))
        return 200, {"access_token": "google-token", "expires_in": 3599}

    async with authority(grant) as (url, _), pool() as http:
        address = f"{url}/token"
        file = tmp_path / "account.json"
        account = {"type": "service_account", "client_email": "agent@project.example", "private_key": pem}
        file.write_text(json.dumps({**account, "private_key_id": "k1", "token_uri": address}))
        token = BearerToken(GoogleTokenRequest(file), http)
        assert (await token.headers("POST", "https://x", b""))["Authorization"] == "Bearer google-token"
    (claim,) = claims
    assert (claim["iss"], claim["scope"]) == ("agent@project.example", GOOGLE_CLOUD_SCOPE)


async def test_google_user_credentials_are_refreshed(tmp_path: Path) -> None:
    file = tmp_path / "person.json"
    async with authority(lambda _: (200, {"access_token": "t", "expires_in": 10})) as (url, received), pool() as http:
        person = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
        file.write_text(json.dumps({**person, "token_uri": url}))
        await BearerToken(GoogleTokenRequest(file), http).headers("GET", "https://x", b"")
    assert received == [{"grant_type": "refresh_token", "client_id": "c", "client_secret": "s", "refresh_token": "r"}]


@pytest.mark.parametrize("text", ["", "[]", '{"type": "service_account", "private_key": "no key"}'])
async def test_broken_credentials_file_raises_bad_key(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.json"
    file.write_text(text)
    async with pool() as http:
        with pytest.raises(BadKey):
            await BearerToken(GoogleTokenRequest(file), http).headers("GET", "https://x", b"")


async def test_bedrock_model_is_called_with_a_signature_or_a_key() -> None:
    async with ModelServer() as server, pool() as http:
        settings = Settings(providers={"bedrock": ProviderAccount(base_url=f"{server.url}/v1")})
        for variables, start in (
            ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}, "AWS4-HMAC-SHA256 "),
            ({"AWS_BEARER_TOKEN_BEDROCK": "b"}, "Bearer b"),
        ):
            providers = ConfiguredProviders(settings, Secrets({}, variables, []))
            _, reply = await collect_reply(providers.open(providers.get("bedrock"), http), request())
            assert reply.message.text == "ok"
            assert server.received[-1].headers["authorization"].startswith(start)


CLOUDS = [
    ("azure", {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/"}, "https://me.openai.azure.com/openai/v1"),
    (
        "bedrock",
        {"AWS_DEFAULT_REGION": "us-east-1"},
        "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1",
    ),
    (
        "vertex",
        {"GOOGLE_CLOUD_LOCATION": "europe-west4", "GOOGLE_CLOUD_PROJECT": "mine"},
        "https://europe-west4-aiplatform.googleapis.com/v1/projects/mine/locations/europe-west4/endpoints/openapi",
    ),
]


@pytest.mark.parametrize(("name", "variables", "url"), CLOUDS)
def test_cloud_address_is_built_from_the_usual_variables(
    name: str, variables: dict[str, str], url: str, tmp_path: Path
) -> None:
    file = tmp_path / "account.json"
    file.write_text("{}")
    access = {
        "AZURE_OPENAI_API_KEY": "k",
        "AWS_BEARER_TOKEN_BEDROCK": "k",
        "GOOGLE_APPLICATION_CREDENTIALS": str(file),
    }
    ready = ConfiguredProviders(Settings(), Secrets({}, variables | access, []))
    assert ready.get(name).preset.base_url == url
    with pytest.raises(Refused, match=next(iter(variables)).replace("DEFAULT_", "")):
        ConfiguredProviders(Settings(), Secrets({}, access, [])).get(name)
    nowhere = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}
    with pytest.raises(Refused, match=r"needs [A-Z_]+, |none\.json, which isn't a file"):
        ConfiguredProviders(Settings(), Secrets({}, variables | nowhere, [])).get(name)
