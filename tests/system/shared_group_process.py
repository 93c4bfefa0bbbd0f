"""The group of `serve_group` with a gateway in a separate process, which also serves the API and can be killed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.api.server_process import Server, client
from tests.app.program import Program
from tests.app.warm_program import WarmProcess
from tests.system.gateway_workers import gateway_program, worker
from tests.system.shared_group import NETWORK, SharedGroup, group_settings

from talaria.access.api_keys import KeyScope, create_key
from talaria.app.store import open_store
from talaria.contracts.store import Transaction
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until

KEYS: dict[str, KeyScope] = {"chat": "chat", "friend": "chat", "agent": "agent", "read": "read", "admin": "admin"}


@dataclass(kw_only=True)
class GroupProcess(SharedGroup):
    """The group; `KEYS` are the API keys and their scopes."""

    program: Program
    port: int

    @asynccontextmanager
    async def running(self) -> AsyncIterator[WarmProcess]:
        """Run the gateway until the block ends, or until it is killed."""
        async with worker(self.program) as process:
            await self.network.until(lambda: self.network.receivers == 1)
            yield process

    @asynccontextmanager
    async def caller(self, name: str) -> AsyncIterator[httpx.AsyncClient]:
        """Yield an API client that uses one of the keys."""
        server = Server(self.program, self.port, f"http://127.0.0.1:{self.port}")
        async with client(server, key=_token(name)) as http:

            async def answers() -> bool:
                try:
                    return (await http.get("/health")).status_code == httpx.codes.OK
                except httpx.TransportError:
                    return False

            await until(answers)
            yield http


def _token(name: str) -> str:
    return f"tal_0123456789abcdef_{name}"


@asynccontextmanager
async def prepare_group_process(home: Path, *, busy: str = "queue", mode: str = "off") -> AsyncIterator[GroupProcess]:
    """Prepare the group; its gateway is to be started with `running`."""
    for name in ("ran", "work"):
        (home / name).mkdir()
    port = free_port()
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network, AsyncExitStack() as stack:
        access, more = group_settings(busy, mode).split("[gateway]\n")
        program = gateway_program(
            home,
            server,
            network,
            access=f"everyone = true\n{access}",
            more=f"{more}[api]\nenabled = true\nport = {port}\n[sandbox]\nenabled = false\n",
        )
        profile = Profiles(home).active()
        store, _ = open_store(load_settings(profile, program.environment()), profile)
        stack.push_async_callback(store.close)
        await store.write(_create_keys)
        here = GroupProcess(
            network=network, server=server, store=store, folder=home / "ran", program=program, port=port
        )
        yield here
        here.released.set()


def _create_keys(tx: Transaction) -> None:
    for name, scope in KEYS.items():
        create_key(tx, name, (scope,), _token(name))
