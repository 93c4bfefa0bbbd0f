"""Create the Matrix adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount, Sender
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.platforms.matrix.adapter import Matrix
from talaria.platforms.matrix.invitations import Invitation
from talaria.platforms.matrix.settings import MatrixSettings

SYNC_POSITION = NamedValue("matrix_position", str)  # by account
LEFT_INVITATIONS = NamedValue("matrix_invitations", str)  # by account


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored token or password.

    Invitations are accepted from those who may speak, and from those whom the options name.
    """
    homeserver = account.secret("MATRIX_HOMESERVER")
    token, password = account.secret("MATRIX_ACCESS_TOKEN"), account.secret("MATRIX_PASSWORD")
    if not homeserver or not (token or password):
        raise Refused(
            "Matrix needs a homeserver, and a token or password for an account there. Run `talaria setup chat` "
            "to enter a token."
        )
    given: dict[str, object] = {**account.options, "homeserver": homeserver.rstrip("/"), "name": account.name}
    given["allowed"] = [one.strip() for one in account.options.get("allowed", "").split(",") if one.strip()]
    given |= {"token": token or "", "password": password or ""}
    if not token and not account.options.get("user"):
        raise Refused(f"To use a password, set `user` in platforms.{account.name}.options.")
    try:
        settings = msgspec.convert(given, MatrixSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    platform = Matrix(
        settings,
        account.folder,
        DurableValueStore(account.store, SYNC_POSITION, account.name),
        left_alone=DurableValueStore(account.store, LEFT_INVITATIONS, account.name),
        welcome=_InvitationPolicy(account, settings),
    )
    account.closing.push_async_callback(platform.close)
    return platform


class DurableValueStore:
    """A small value in the store."""

    def __init__(self, store: Store, value: NamedValue[str], name: str) -> None:
        self._store = store
        self._value = value
        self._name = name

    async def load(self) -> str:
        """Return the last value; empty the first time."""
        return await self._store.read(lambda tx: self._value.get(tx, self._name)) or ""

    async def save(self, token: str) -> None:
        """Replace the value durably."""
        await self._store.write(lambda tx: self._value.write(tx, self._name, token))


class _InvitationPolicy:
    """The rule that decides whose invitations are accepted."""

    def __init__(self, account: PlatformAccount, settings: MatrixSettings) -> None:
        self._account = account
        self._settings = settings

    async def __call__(self, invitation: Invitation) -> bool:
        is_direct = self._settings.invitations == "direct" and invitation.direct
        if is_direct or invitation.inviter in self._settings.allowed:
            return True
        if self._account.may_join is None:
            return False
        chat_address = Address(self._account.name, invitation.room_id, "private" if invitation.direct else "group")
        return await self._account.may_join(chat_address, Sender(invitation.inviter))
