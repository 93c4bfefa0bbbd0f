"""One authorization server for all sign-ins of a worker."""

from collections.abc import Iterator

import pytest
from tests.app.logins.oidc_server import OidcServer, running_oidc_provider


@pytest.fixture(scope="session")
def issuer() -> Iterator[str]:
    """The address of the authorization server."""
    with running_oidc_provider() as address:
        yield address


@pytest.fixture
async def oidc(issuer: str) -> OidcServer:
    """The authorization server, with a refresh count that starts with this test."""
    return OidcServer(issuer, await OidcServer(issuer).count_refreshes())
