"""Make the Matrix adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.contracts.store import Store
from talaria.core.errors import Refused
from talaria.platforms.matrix.adapter import Matrix, Welcome
from talaria.platforms.matrix.connection import Invitation
from talaria.platforms.matrix.settings import MatrixSettings


def open_platform(account: PlatformAccount, welcome: Welcome | None = None) -> Platform:
    """Return the adapter of the account whose token or password is stored; ``welcome`` decides on invitations.

    Without it those are accepted whom the options allow or the owner has let in.
    """
    homeserver = account.secret("MATRIX_HOMESERVER")
    token, password = account.secret("MATRIX_ACCESS_TOKEN"), account.secret("MATRIX_PASSWORD")
    if not homeserver or not (token or password):
        raise Refused(
            "Matrix needs a homeserver and the token of an account there: `talaria setup chat` asks for them."
        )
    given: dict[str, object] = {**account.options, "homeserver": homeserver.rstrip("/"), "name": account.name}
    given["allowed"] = [one.strip() for one in account.options.get("allowed", "").split(",") if one.strip()]
    given |= {"token": token or "", "password": password or ""}
    try:
        settings = msgspec.convert(given, MatrixSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"An option of platforms.{account.name} is wrong: {error}.") from error
    position = StoredPosition(account.store, f"position:{account.name}")
    platform = Matrix(settings, account.folder, position, welcome=welcome or _Guests(account.store, settings))
    account.closing.push_async_callback(platform.close)
    return platform


class StoredPosition:
    """Keeps in the store how far an account has been read."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key

    async def load(self) -> str:
        """Return what was saved last; empty at the very first time."""
        entry = await self._store.read(lambda tx: tx.state.get(self._key))
        return entry.value if entry else ""

    async def save(self, token: str) -> None:
        """Keep this durably in place of what was there."""
        await self._store.write(lambda tx: tx.state.put(self._key, token))


class _Guests:
    """Those whose invitations are accepted."""

    def __init__(self, store: Store, settings: MatrixSettings) -> None:
        self._store = store
        self._settings = settings

    async def __call__(self, invitation: Invitation) -> bool:
        if invitation.inviter in self._settings.allowed or (
            self._settings.invitations == "direct" and invitation.direct
        ):
            return True
        return await self._store.read(lambda tx: tx.pairing.is_paired(self._settings.name, invitation.inviter))
