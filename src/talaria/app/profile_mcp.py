"""MCP servers of a profile for the commands of its owner: settings, tests, sign-ins and serving."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from talaria.app.session.secret_values import fill_secrets
from talaria.contracts.mcp import ServerEntry, ServerState
from talaria.contracts.setup import SignInSurface, SignInWay
from talaria.core.errors import Refused
from talaria.settings.config_file import read_source
from talaria.settings.load import load_settings
from talaria.settings.logins import LoginStore, login_name
from talaria.settings.profiles import Profile
from talaria.settings.schema import format_key
from talaria.settings.secrets import read_secrets
from talaria.settings.sections.tools import McpServerSettings


class ProfileMcp:
    """Implementation of `McpService`; the settings are read again for each call."""

    def __init__(self, profile: Profile, environment: Mapping[str, str]) -> None:
        self._profile = profile
        self._environment = environment
        self._logins = LoginStore(profile.folder)

    def save(self, name: str, values: Mapping[str, Any]) -> None:
        """Write the settings of a server, in place of others of that name; defaults are left out."""
        from talaria.settings.edit import compute_file_version, edit_values  # noqa: PLC0415 (loaded for a change: needs tomlkit)

        version = compute_file_version(read_source(self._profile.config_file).text)
        table: dict[str, Any] = {format_key(("mcp", name)): None} if name in self._read_servers() else {}
        fields = {format_key(("mcp", name, field)): value for field, value in values.items() if value}
        edit_values(self._profile, table | fields, version)

    def remove(self, name: str) -> None:
        """Remove a server from the settings."""
        from talaria.settings.edit import unset_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

        unset_value(self._profile, format_key(("mcp", name)))

    def list(self) -> list[ServerEntry]:
        """Return the servers in the settings."""
        return [self._describe(name, server) for name, server in self._read_servers().items()]

    def test(self, name: str) -> ServerState:
        """Connect to a server, list what it offers and disconnect."""
        logging.getLogger("talaria").addHandler(logging.NullHandler())  # the state has the reason, too
        secrets = read_secrets(self._profile, self._environment)
        from talaria.app.session.mcp_servers import try_server  # noqa: PLC0415 (loaded for a server: starts asyncio)

        return asyncio.run(try_server(name, self._read_servers()[name], secrets, self._profile))

    def sign_in(self, name: str, surface: SignInSurface, *, way: SignInWay, wait: timedelta) -> str:
        """Let a person sign in and return the account; raises `Refused` with the reason if that fails."""
        server, secrets = self._read_servers()[name], read_secrets(self._profile, self._environment)
        headers = {key: fill_secrets(value, secrets) for key, value in server.headers.items()}
        secret = fill_secrets(server.client_secret, secrets)
        from talaria.app.session.mcp_servers import McpSignIn  # noqa: PLC0415 (loaded for a sign-in)

        return McpSignIn(name, server, headers, secret, self._logins).run(surface, way, wait).account

    def sign_out(self, name: str) -> bool:
        """Revoke and delete the tokens; return whether there were any."""
        if not self._logins.exists(login_name(name)):
            return False
        from talaria.app.session.mcp_servers import sign_out_of_server  # noqa: PLC0415 (loaded for a sign-in)

        return sign_out_of_server(name, self._logins)

    def serve(self) -> None:
        """Serve this agent to another one on standard input and output, until the input ends."""
        from talaria.app.api import serve_mcp  # noqa: PLC0415 (loaded to serve)
        from talaria.app.application import open_application  # noqa: PLC0415 (loaded to serve)

        settings, secrets = (
            load_settings(self._profile, self._environment),
            read_secrets(self._profile, self._environment),
        )
        asyncio.run(serve_mcp(partial(open_application, settings, self._profile, secrets, self._environment)))

    def _describe(self, name: str, server: McpServerSettings) -> ServerEntry:
        try:
            login = self._logins.get(login_name(name)) if server.url else None
            problem = login.problem if login is not None else ""
        except Refused as error:
            login, problem = None, str(error)
        return ServerEntry(
            signed_in=login is not None and not login.problem,
            account=login.account if login is not None else "",
            problem=problem,
            name=name,
            enabled=server.enabled,
            transport="http" if server.url else "stdio",
            target=server.target,
        )

    def _read_servers(self) -> Mapping[str, McpServerSettings]:
        return load_settings(self._profile, self._environment).mcp
