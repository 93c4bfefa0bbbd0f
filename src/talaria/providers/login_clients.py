"""OAuth clients for signing in with a subscription: endpoints, scopes, and the provider that each one enables."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

DeviceFlow = Literal["", "standard", "openai"]

_OPENAI = "https://auth.openai.com"
_OPENAI_CLAIMS = "https://api.openai.com/auth"
_GITHUB = "https://github.com/login"


class OAuthClient(Struct, frozen=True, kw_only=True):
    """A public client of an authorization server; ``provider`` names the preset that works once signed in.

    ``device_flow`` is ``standard`` (RFC 8628), OpenAI's own, or empty if there is none. A server with an
    ``exchange_url`` trades the granted token for a short-lived one there. ``redirect_ports`` are the registered ports
    of the loopback address, empty if any port will do. ``token_parameters`` are added to requests for tokens;
    ``secret_in_header`` sends the client's secret as a header (HTTP Basic). ``command`` is how a person signs in
    again, by default `talaria login NAME`. The names in ``account_claim`` and ``plan_claim`` lead to a
    value in the token; the account is sent as ``account_header``.
    """

    name: str
    title: str
    provider: str
    client_id: str = ""
    client_secret: str = ""
    issuer: str = ""
    authorize_url: str = ""
    token_url: str = ""
    device_url: str = ""
    device_page: str = ""
    revoke_url: str = ""
    exchange_url: str = ""
    scope: str = ""
    device_flow: DeviceFlow = ""
    redirect_path: str = "/auth/callback"
    redirect_ports: tuple[int, ...] = ()
    parameters: Mapping[str, str] = {}
    account_header: str = ""
    account_claim: tuple[str, ...] = ()
    plan_claim: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    token_parameters: Mapping[str, str] = {}
    secret_in_header: bool = False
    command: str = ""

    @property
    def sign_in_command(self) -> str:
        """Return the command with which a person signs in."""
        return self.command or f"talaria login {self.name}"

    @property
    def has_browser_flow(self) -> bool:
        """Return whether the server can redirect a browser back to this machine."""
        return bool(self.authorize_url)


LOGIN_CLIENTS: tuple[OAuthClient, ...] = (
    OAuthClient(
        name="openai",
        title="ChatGPT",
        provider="chatgpt",
        client_id="app_EMoamEEZ73f0CkXaXp7hrann",  # the public client of the Codex CLI
        issuer=_OPENAI,
        authorize_url=f"{_OPENAI}/oauth/authorize",
        token_url=f"{_OPENAI}/oauth/token",
        device_url=f"{_OPENAI}/api/accounts/deviceauth",
        device_page=f"{_OPENAI}/codex/device",
        revoke_url=f"{_OPENAI}/oauth/revoke",
        scope="openid profile email offline_access",
        device_flow="openai",
        redirect_ports=(1455, 1457),
        parameters={
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
            "originator": "talaria",
        },
        account_header="ChatGPT-Account-Id",
        account_claim=(_OPENAI_CLAIMS, "chatgpt_account_id"),
        plan_claim=(_OPENAI_CLAIMS, "chatgpt_plan_type"),
    ),
    OAuthClient(
        name="github-copilot",
        title="GitHub Copilot",
        provider="github-copilot",
        client_id="Iv1.b507a08c87ecfe98",  # the public client of Copilot in editors
        token_url=f"{_GITHUB}/oauth/access_token",
        device_url=f"{_GITHUB}/device/code",
        exchange_url="https://api.github.com/copilot_internal/v2/token",
        scope="read:user",
        device_flow="standard",
        headers={"Editor-Version": "Talaria/1.0", "User-Agent": "Talaria/1.0"},
    ),
    OAuthClient(
        name="google",
        title="Google",
        provider="google",
        # No client is built in: Google forbids other programs to sign in as Gemini CLI, see docs/adr/0039.
        issuer="https://accounts.google.com",
        authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
        token_url="https://oauth2.googleapis.com/token",  # noqa: S106 - an address, not a secret
        revoke_url="https://oauth2.googleapis.com/revoke",
        scope="openid email https://www.googleapis.com/auth/cloud-platform"
        " https://www.googleapis.com/auth/generative-language.retriever",
        redirect_path="/",
        parameters={"access_type": "offline", "prompt": "consent"},
    ),
)


def find_login_client(name: str) -> OAuthClient | None:
    """Return the client with this name, if there is one."""
    return next((client for client in LOGIN_CLIENTS if client.name == name), None)
