"""The IRC adapter: receives channels and private messages, and sends replies."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

from talaria.contracts.platform import (
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    PlatformDefaults,
    Sender,
)
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.aio import run_with
from talaria.core.errors import PlatformError, Refused, Rejected
from talaria.core.ids import new_id
from talaria.platforms.irc.connection import IrcConnection
from talaria.platforms.irc.settings import IrcSettings, read_settings
from talaria.platforms.irc.wire import TEXT_LIMIT, ReceivedLine, fold, to_incoming
from talaria.platforms.received_queue import ReceivedQueue

IRC_RECEIVED = NamedValue("irc_received", ReceivedLine)  # by account and time
IRC_NICK = NamedValue("irc_nick", str)  # by account and account of a person: the last nick
_CHANNEL_SIGNS = "#&!+"
_TRUST = timedelta(seconds=60)  # how long a nick counts as the account's after the server said so
_MOST_CACHED = 1000
_LOG_IN_FIRST = "I only talk to people who are logged in to services here, for example with NickServ."

log = logging.getLogger(__name__)


class Irc(PlatformDefaults):
    """One account on one IRC network; the creator closes it."""

    def __init__(self, settings: IrcSettings, store: Store, commands: Collection[str] = ()) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT, text_unit="bytes", replies=False, exclusive=True, backlog=False, servers=True
        )
        self._settings = settings
        self._store = store
        self._commands = frozenset(commands)
        self._queue = ReceivedQueue(store, IRC_RECEIVED, settings.name)
        self._people = NickDirectory(store, settings.name)
        self._connection: IrcConnection | None = None
        self._opening = asyncio.Lock()
        self._notified: set[str] = set()
        self._accounts: dict[str, tuple[str, float]] = {}  # by nick!user@host, with the time of the answer

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, join the channels and yield what people write."""
        connection = await self._open()
        try:
            connection.receives_channels = True
            for channel in self._settings.channels:
                try:
                    await connection.join(channel)
                except Rejected as error:
                    log.warning("%s: %s", self.name, error)
            async with aclosing(self._receive_updates(connection)) as updates:
                yield updates
        finally:
            await connection.close()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Send a text to a channel of the settings or to a person."""
        if content.files:
            raise Rejected("IRC has no files")
        connection = await self._open()
        if to.chat_id.startswith(tuple(_CHANNEL_SIGNS)):
            if fold(to.chat_id) not in map(fold, self._settings.channels):
                raise Rejected(f"{to.chat_id} is not one of the channels in platforms.{self.name}.options.channels")
            await connection.join(to.chat_id)
            target = to.chat_id
        else:
            target = await self._find_nick(connection, to.chat_id)
        await connection.say(target, content.text)
        return MessageRef(to, new_id())

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.close()

    async def _open(self) -> IrcConnection:
        """Return the connection, opened if needed."""
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                connection = IrcConnection(self._settings, self._queue.add)
                try:
                    await connection.open()
                except BaseException:
                    await connection.close()
                    raise
                self._connection = connection
            return self._connection

    async def _receive_updates(self, connection: IrcConnection) -> AsyncGenerator[Incoming, None]:
        while True:
            for key, line in await run_with(self._queue.pending(), connection.watch()):
                incoming = await self._read(connection, key, line)
                if incoming is not None:
                    yield incoming
                await self._queue.remove(key)

    async def _read(self, connection: IrcConnection, key: str, line: ReceivedLine) -> Incoming | None:
        """Return the update for a line; ``None`` for a private message of a person whom nobody vouches for."""
        in_channel = line.target.startswith(tuple(_CHANNEL_SIGNS))
        account = await self._identify(connection, line)
        if not account and not in_channel:
            await self._ask_to_log_in(connection, line)
            return None
        person = Sender(account or f"unverified:{line.source}", line.nick)
        address = Address(self.name, fold(line.target), "group") if in_channel else Address(self.name, account)
        nicks = {connection.nick, self._settings.nick}
        return to_incoming(line, key, address, person, nicks, self._commands, network=connection.network)

    async def _identify(self, connection: IrcConnection, line: ReceivedLine) -> str:
        """Return who wrote a line: an account, a nick if the settings trust nicks, or nothing."""
        if self._settings.identity == "nick":
            return fold(line.nick)
        account = line.account
        if account is None:
            account = await self._look_up(connection, line)
        if account:
            await self._people.learn(fold(account), line.nick)
        return fold(account)

    async def _look_up(self, connection: IrcConnection, line: ReceivedLine) -> str:
        """Ask the server for the account of a sender, once a minute."""
        now = asyncio.get_running_loop().time()
        account, at = self._accounts.get(line.source, ("", -_TRUST.total_seconds()))
        if now - at < _TRUST.total_seconds():
            return account
        found = await connection.account_of(line.nick)
        # The nick may have changed hands since the line was received.
        account = found[0] if found and found[1] == line.source.partition("!")[2] else ""
        if len(self._accounts) >= _MOST_CACHED:
            self._accounts.clear()
        self._accounts[line.source] = (account, now)
        return account

    async def _find_nick(self, connection: IrcConnection, chat_id: str) -> str:
        """Return the nick of a person, who must be logged in as the account that the chat is with."""
        if self._settings.identity == "nick":
            return chat_id
        nick = await self._people.nick(chat_id)
        if self._people.is_fresh(chat_id, nick):
            return nick
        found = await connection.account_of(nick)
        if found is None or fold(found[0]) != chat_id:
            raise Rejected(f"{nick} is not logged in as {chat_id}, so nothing is sent there")
        await self._people.learn(chat_id, nick)
        return nick

    async def _ask_to_log_in(self, connection: IrcConnection, line: ReceivedLine) -> None:
        if line.source in self._notified or len(self._notified) >= _MOST_CACHED:
            return
        self._notified.add(line.source)
        try:
            await connection.say(line.nick, _LOG_IN_FIRST, "NOTICE")
        except PlatformError as error:
            log.info("%s: couldn't answer %s: %s", self.name, line.nick, error)


class NickDirectory:
    """The last nick of each account of a network, stored, and when the server confirmed it."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._confirmed: dict[str, tuple[str, float]] = {}

    async def learn(self, account: str, nick: str) -> None:
        """Record that an account has this nick now."""
        known = self._confirmed.get(account, ("", 0.0))[0]
        self._confirmed[account] = (nick, asyncio.get_running_loop().time())
        if known != nick:
            await self._store.write(lambda tx: IRC_NICK.write(tx, f"{self._name}:{account}", nick))

    async def nick(self, account: str) -> str:
        """Return the last nick of an account; its own name if none is known."""
        if account in self._confirmed:
            return self._confirmed[account][0]
        return await self._store.read(lambda tx: IRC_NICK.get(tx, f"{self._name}:{account}")) or account

    def is_fresh(self, account: str, nick: str) -> bool:
        """Return whether the server confirmed a moment ago that the account has this nick."""
        known, at = self._confirmed.get(account, ("", 0.0))
        return known == nick and asyncio.get_running_loop().time() - at < _TRUST.total_seconds()


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the server of a profile."""
    server = account.secret("IRC_SERVER")
    if not server:
        raise Refused("IRC needs a server. Set it with `talaria config set IRC_SERVER <host>`.")
    settings = read_settings(
        account.name,
        account.options,
        server,
        password=account.secret("IRC_PASSWORD") or "",
        server_password=account.secret("IRC_SERVER_PASSWORD") or "",
    )
    platform = Irc(settings, account.store, [name for name, _ in account.commands])
    account.closing.push_async_callback(platform.close)
    return platform
