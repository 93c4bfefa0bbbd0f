"""Discovery of the authorization server of an MCP server, and registration of a client there (OAuth 2.1)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    create_oauth_metadata_request,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_registration_response,
    issuers_match,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from msgspec import Struct
from pydantic import AnyUrl, ValidationError

from talaria.core.errors import Refused

_SECONDS = 20.0
_UNAUTHORIZED = 401
_GRANTS = ["authorization_code", "refresh_token"]
_PROBE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "talaria", "version": "1"},
    },
}
_BASIC = "client_secret_basic"
_ACCEPT = {"accept": "application/json, text/event-stream"}


class ServerAuthorization(Struct, frozen=True, kw_only=True):
    """Endpoints and scope of a sign-in; ``resource`` is what the tokens are for (RFC 8707)."""

    issuer: str
    authorize_url: str
    token_url: str
    resource: str
    scope: str = ""
    revoke_url: str = ""
    registration_url: str = ""


class RegisteredClient(Struct, frozen=True, kw_only=True):
    """A client that the authorization server knows."""

    client_id: str
    client_secret: str = ""
    secret_in_header: bool = False


async def discover_authorization(name: str, url: str, headers: Mapping[str, str]) -> ServerAuthorization:
    """Ask a server where to sign in (RFC 9728, RFC 8414); raises `Refused` with the reason if that fails."""
    async with _open_http(name) as http:
        probe = await http.post(url, json=_PROBE, headers={**_ACCEPT, **headers})
        if probe.status_code != _UNAUTHORIZED:
            raise Refused(f"{name} doesn't ask for a sign-in (HTTP {probe.status_code}).")
        resource = await _find_resource(http, probe, url)
        server = str(resource.authorization_servers[0]) if resource and resource.authorization_servers else None
        metadata = await _find_metadata(http, server, url)
        if metadata is None:
            raise Refused(f"{name} doesn't say where to sign in. Give it a token with `--header` instead.")
        methods = metadata.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise Refused(f"The sign-in of {name} doesn't support PKCE with S256, which is required.")
        scope = get_client_metadata_scopes(extract_scope_from_www_auth(probe), resource, metadata, _GRANTS)
    return ServerAuthorization(
        issuer=str(metadata.issuer),
        authorize_url=str(metadata.authorization_endpoint),
        token_url=str(metadata.token_endpoint),
        revoke_url=str(metadata.revocation_endpoint or ""),
        registration_url=str(metadata.registration_endpoint or ""),
        scope=scope or "",
        resource=str(resource.resource) if resource else resource_url_from_server_url(url),
    )


async def register_client(name: str, found: ServerAuthorization, redirect_uri: str) -> RegisteredClient:
    """Register a client for this redirect address (RFC 7591); raises `Refused` with the reason if that fails."""
    if not found.registration_url:
        raise Refused(
            f"{name} registers no clients by itself. Create an OAuth client there with the redirect address"
            f" {redirect_uri}, then set `mcp.{name}.client_id` and `mcp.{name}.redirect_port`."
        )
    metadata = OAuthClientMetadata(
        client_name="Talaria",
        redirect_uris=[AnyUrl(redirect_uri)],
        grant_types=_GRANTS,
        response_types=["code"],
        token_endpoint_auth_method="none",  # noqa: S106 (a public client has no secret)
        scope=found.scope or None,
    )
    async with _open_http(name) as http:
        request = create_client_registration_request(None, metadata, found.issuer)
        answer = await http.post(found.registration_url, content=request.content, headers=request.headers)
        registered = await handle_registration_response(answer)
        check_registration_usable(registered)
    return RegisteredClient(
        client_id=registered.client_id or "",
        client_secret=registered.client_secret or "",
        secret_in_header=registered.token_endpoint_auth_method == _BASIC,
    )


async def _find_resource(
    http: httpx2.AsyncClient, probe: httpx2.Response, url: str
) -> ProtectedResourceMetadata | None:
    """Return what a server publishes about its sign-in; it must be about this server."""
    metadata_url = extract_resource_metadata_from_www_auth(probe)
    for candidate in build_protected_resource_metadata_discovery_urls(metadata_url, url):
        found = await handle_protected_resource_response(await http.send(create_oauth_metadata_request(candidate)))
        if found is None:
            continue
        resource = resource_url_from_server_url(url)
        if not check_resource_allowed(requested_resource=resource, configured_resource=str(found.resource)):
            raise Refused(f"The sign-in offered at {url} is for another server: {found.resource}.")
        return found
    return None


async def _find_metadata(http: httpx2.AsyncClient, server: str | None, url: str) -> OAuthMetadata | None:
    """Return the endpoints of an authorization server; its metadata must name that server."""
    for candidate in build_oauth_authorization_server_metadata_discovery_urls(server, url):
        known, found = await handle_auth_metadata_response(await http.send(create_oauth_metadata_request(candidate)))
        if found is not None:
            if server is not None and not issuers_match(str(found.issuer), server):
                raise Refused(f"The sign-in at {server} says that it is {found.issuer}. It isn't used.")
            return found
        if not known:
            return None
    return None


@asynccontextmanager
async def _open_http(name: str) -> AsyncIterator[httpx2.AsyncClient]:
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS) as http:
            yield http
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Refused(f"The sign-in to {name} failed: {str(error) or type(error).__name__}. Try again.") from error
    except (OAuthFlowError, ValidationError) as error:
        reason = " ".join(str(error).split())[:300]
        raise Refused(f"The sign-in to {name} failed: {reason.rstrip('.')}.") from error
