"""Make the Matrix adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount, Sender
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.platforms.matrix.adapter import Matrix
from talaria.platforms.matrix.invitations import Invitation
from talaria.platforms.matrix.settings import MatrixSettings


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter of the account whose token or password is stored.

    Invitations are accepted from those who may speak, and from those whom the options name.
    """
    homeserver = account.secret("MATRIX_HOMESERVER")
    token, password = account.secret("MATRIX_ACCESS_TOKEN"), account.secret("MATRIX_PASSWORD")
    if not homeserver or not (token or password):
        raise Refused(
            "Matrix needs a homeserver and the token or the password of an account there: `talaria setup chat` asks for"
            " a token."
        )
    given: dict[str, object] = {**account.options, "homeserver": homeserver.rstrip("/"), "name": account.name}
    given["allowed"] = [one.strip() for one in account.options.get("allowed", "").split(",") if one.strip()]
    given |= {"token": token or "", "password": password or ""}
    if not token and not account.options.get("user"):
        raise Refused(f"With a password Matrix needs to know whose it is: `user` in platforms.{account.name}.options.")
    try:
        settings = msgspec.convert(given, MatrixSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"An option of platforms.{account.name} is wrong: {error}.") from error
    platform = Matrix(
        settings,
        account.folder,
        StoredPosition(account.store, f"position:{account.name}"),
        left_alone=StoredPosition(account.store, f"invitations:{account.name}"),
        welcome=_Guests(account, settings),
    )
    account.closing.push_async_callback(platform.close)
    return platform


class StoredPosition:
    """Keeps something small in the store."""

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

    def __init__(self, account: PlatformAccount, settings: MatrixSettings) -> None:
        self._account = account
        self._settings = settings

    async def __call__(self, invitation: Invitation) -> bool:
        wanted = self._settings.invitations == "direct" and invitation.direct
        if wanted or invitation.inviter in self._settings.allowed:
            return True
        if self._account.admits is None:
            return False
        place = Address(self._account.name, invitation.room_id, "private" if invitation.direct else "group")
        return await self._account.admits(place, Sender(invitation.inviter))
