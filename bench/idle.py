"""Memory and CPU time of an idle gateway that is connected to all chat networks."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import msgspec

from bench.gateway_home import start_gateway
from bench.measure import Measurement, command_path, cpu_seconds
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS
from talaria.testing.discord_server import DiscordServer
from talaria.testing.feishu_server import FeishuKeys, feishu_server
from talaria.testing.googlechat_server import googlechat_server
from talaria.testing.homeserver import Homeserver
from talaria.testing.line_server import line_server
from talaria.testing.mail_server import DOMAIN, PASSWORD, MailServer
from talaria.testing.mattermost_server import mattermost_server
from talaria.testing.model_server import ModelServer
from talaria.testing.ntfy_server import ntfy_server
from talaria.testing.signal_daemon import signal_daemon
from talaria.testing.slack_server import APP_TOKEN, TOKEN, SlackServer
from talaria.testing.system_servers import ngircd, prosody
from talaria.testing.teams_server import teams_server
from talaria.testing.telegram_server import TelegramServer
from talaria.testing.twilio_server import ACCOUNT, NUMBER, twilio_server
from talaria.testing.whatsapp_server import NUMBER_ID, whatsapp_server

NAME = "idle"
_SECRET = "0123456789abcdef0123456789abcdef"
_CONNECT_SECONDS = 120
_WARM_UP_SECONDS = 10
_PERCENT = 100
_MEGABYTE = 1_000_000


class ServedNetwork(msgspec.Struct, frozen=True):
    """Options and secrets with which a gateway reaches a local test server."""

    options: Mapping[str, object]
    secrets: Mapping[str, str] = {}


def run(quick: bool) -> list[Measurement]:
    """Measure a gateway with one network, and one with all of them."""
    seconds = 10 if quick else 60
    return asyncio.run(_measure(seconds))


async def _measure(seconds: int) -> list[Measurement]:
    missing = sorted(BUILT_IN_PLATFORMS.keys() ^ _NETWORKS.keys())
    assert not missing, f"networks without a test server here, or unknown: {', '.join(missing)}"
    memory, share = await _measure_gateway(_NETWORKS, seconds)
    one_memory, one_share = await _measure_gateway({"ntfy": _NETWORKS["ntfy"]}, seconds)
    count = len(_NETWORKS)
    return [
        Measurement(f"memory with {count} networks, vs one", memory, "MB", 2.5, floor=one_memory),
        Measurement(f"memory with {count} networks", memory, "MB", 100),
        Measurement(f"CPU with {count} networks", share, "% of a core", 1.0),
        Measurement("CPU with one network, for comparison", one_share, "% of a core", 1.0),
    ]


async def _measure_gateway(networks: "Mapping[str, _Serve]", seconds: int) -> tuple[float, float]:
    """Return the megabytes and the percentage of a core that a connected, idle gateway uses."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ModelServer())
        home = Path(stack.enter_context(TemporaryDirectory()))
        served = {name: await stack.enter_async_context(serve()) for name, serve in networks.items()}
        environment = _write_profile(home, model.url, served)
        gateway = await start_gateway(environment)
        try:
            await _wait_until_connected(environment, set(networks))
            await asyncio.sleep(_WARM_UP_SECONDS)
            before = cpu_seconds(gateway.pid)
            await asyncio.to_thread(sleep, seconds)
            share = (cpu_seconds(gateway.pid) - before) / seconds * _PERCENT
            return _proportional_memory(gateway.pid), share
        finally:
            gateway.terminate()
            await gateway.wait()


def _write_profile(home: Path, model: str, served: Mapping[str, ServedNetwork]) -> dict[str, str]:
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True, mode=0o700)
    lines = [
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model}/v1"\n',
        "[access]\neveryone = true\n",
    ]
    for name, network in served.items():
        lines.append(f"[platforms.{name}.options]\n")
        lines += [f'{option} = "{value}"\n' for option, value in network.options.items()]
    (folder / "config.toml").write_text("".join(lines))
    secrets = [f"{name}={value}\n" for network in served.values() for name, value in network.secrets.items()]
    (folder / ".env").touch(0o600)
    (folder / ".env").write_text("".join(secrets))
    return {"HOME": str(home), "TALARIA_HOME": str(home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}


async def _wait_until_connected(environment: dict[str, str], expected: set[str]) -> None:
    """Wait until a gateway is connected to all expected networks."""
    states: dict[str, str] = {}
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            while {name for name, state in states.items() if state == "connected"} != expected:
                process = await asyncio.create_subprocess_exec(
                    command_path("talaria"), "gateway", "status", "--json", env=environment,
                    stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                )  # fmt: skip
                output, _ = await process.communicate()
                workers = msgspec.json.decode(output or b"[]")
                states = {one["name"]: one["state"] for worker in workers for one in worker["networks"]}
    except TimeoutError:
        raise RuntimeError(f"not connected to all networks: {states}") from None


def _proportional_memory(pid: int) -> float:
    """Return the proportional set size of a process, in megabytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) * 1024 / _MEGABYTE


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def _telegram() -> AsyncIterator[ServedNetwork]:
    async with TelegramServer() as server:
        options = {"base_url": server.base_url, "base_file_url": server.base_file_url}
        yield ServedNetwork(options, {"TELEGRAM_BOT_TOKEN": server.token})


@asynccontextmanager
async def _discord() -> AsyncIterator[ServedNetwork]:
    async with DiscordServer() as server:
        yield ServedNetwork({"api_url": server.api_url}, {"DISCORD_BOT_TOKEN": server.token})


@asynccontextmanager
async def _slack() -> AsyncIterator[ServedNetwork]:
    async with SlackServer() as server:
        yield ServedNetwork({"base_url": server.base_url}, {"SLACK_BOT_TOKEN": TOKEN, "SLACK_APP_TOKEN": APP_TOKEN})


@asynccontextmanager
async def _matrix() -> AsyncIterator[ServedNetwork]:
    with Homeserver() as server:
        account = await asyncio.to_thread(server.homeserver_client.register, "talaria")
        secrets = {"MATRIX_HOMESERVER": server.homeserver_client.url, "MATRIX_ACCESS_TOKEN": account.token}
        yield ServedNetwork({}, secrets)


@asynccontextmanager
async def _email() -> AsyncIterator[ServedNetwork]:
    with MailServer() as server:
        incoming = {"imap_host": "127.0.0.1", "imap_port": server.imap, "imap_security": "none"}
        outgoing = {"smtp_host": "127.0.0.1", "smtp_port": server.smtp, "smtp_security": "none"}
        options = {"address": f"talaria@{DOMAIN}", "authserv_id": f"mx.{DOMAIN}", **incoming, **outgoing}
        yield ServedNetwork(options, {"EMAIL_PASSWORD": PASSWORD})


@asynccontextmanager
async def _ntfy() -> AsyncIterator[ServedNetwork]:
    async with ntfy_server("tk_of_the_bench", frozenset({"ann"})) as server:
        yield ServedNetwork({"server": server.url}, {"NTFY_TOPIC": "ann", "NTFY_TOKEN": "tk_of_the_bench"})


@asynccontextmanager
async def _irc() -> AsyncIterator[ServedNetwork]:
    with ngircd() as server:
        yield ServedNetwork({"identity": "nick"}, {"IRC_SERVER": f"irc://127.0.0.1:{server.port}"})


@asynccontextmanager
async def _mattermost() -> AsyncIterator[ServedNetwork]:
    async with mattermost_server("token-of-the-bench") as server:
        yield ServedNetwork({}, {"MATTERMOST_URL": server.url, "MATTERMOST_TOKEN": "token-of-the-bench"})


@asynccontextmanager
async def _signal() -> AsyncIterator[ServedNetwork]:
    account = "+4915100000001"
    async with signal_daemon(account, frozenset()) as daemon:
        yield ServedNetwork({}, {"SIGNAL_DAEMON": daemon.address, "SIGNAL_ACCOUNT": account})


@asynccontextmanager
async def _xmpp() -> AsyncIterator[ServedNetwork]:
    with prosody() as server:
        server.set_password("talaria", _SECRET)
        options = {"server": f"127.0.0.1:{server.port}", "ca_file": server.certificate}
        yield ServedNetwork(options, {"XMPP_JID": "talaria@localhost", "XMPP_PASSWORD": _SECRET})


@asynccontextmanager
async def _line() -> AsyncIterator[ServedNetwork]:
    async with line_server("line-token-of-the-bench", _SECRET, {}) as server:
        options = {"api_url": server.url, "data_url": server.url, **_webhook_options("line")}
        secrets = {"LINE_CHANNEL_TOKEN": "line-token-of-the-bench", "LINE_CHANNEL_SECRET": _SECRET}
        yield ServedNetwork(options, secrets)


@asynccontextmanager
async def _teams() -> AsyncIterator[ServedNetwork]:
    async with teams_server("app", _SECRET, "tenant", {}) as server:
        keys = f"{server.url}/v1/.well-known/openidconfiguration"
        options = {"authority": server.url, "tenant": "tenant", "openid_url": keys, **_webhook_options("teams")}
        yield ServedNetwork(options, {"TEAMS_APP_ID": "app", "TEAMS_APP_SECRET": _SECRET})


@asynccontextmanager
async def _googlechat() -> AsyncIterator[ServedNetwork]:
    with TemporaryDirectory() as folder:
        async with googlechat_server("1234567890", {}) as server:
            server.write_key_file(Path(folder, "key.json"))
            options = {"api_url": server.url, "keys_url": f"{server.url}/keys", "project_number": "1234567890"}
            secrets = {"GOOGLE_CHAT_CREDENTIALS": str(Path(folder, "key.json"))}
            yield ServedNetwork({**options, **_webhook_options("googlechat")}, secrets)


@asynccontextmanager
async def _feishu() -> AsyncIterator[ServedNetwork]:
    keys = FeishuKeys("cli_bench", _SECRET, _SECRET, _SECRET)
    async with feishu_server(keys, {}, {}) as server:
        secrets = {
            "FEISHU_APP_ID": keys.app_id,
            "FEISHU_APP_SECRET": keys.secret,
            "FEISHU_ENCRYPT_KEY": keys.encrypt_key,
            "FEISHU_VERIFICATION_TOKEN": keys.token,
        }
        yield ServedNetwork({"api_url": server.url, **_webhook_options("feishu")}, secrets)


@asynccontextmanager
async def _whatsapp() -> AsyncIterator[ServedNetwork]:
    async with whatsapp_server("whatsapp-token", _SECRET, {}) as server:
        secrets = {
            "WHATSAPP_TOKEN": "whatsapp-token",
            "WHATSAPP_APP_SECRET": _SECRET,
            "WHATSAPP_VERIFY_TOKEN": "verify me",
        }
        options = {"api_url": server.url, "phone_number_id": NUMBER_ID, **_webhook_options("whatsapp")}
        yield ServedNetwork(options, secrets)


@asynccontextmanager
async def _sms() -> AsyncIterator[ServedNetwork]:
    async with twilio_server(_SECRET, frozenset()) as server:
        secrets = {"TWILIO_ACCOUNT_SID": ACCOUNT, "TWILIO_AUTH_TOKEN": _SECRET, "TWILIO_PHONE_NUMBER": NUMBER}
        yield ServedNetwork({"api_url": server.url, **_webhook_options("sms")}, secrets)


def _webhook_options(name: str) -> dict[str, object]:
    """Return the options of a network that sends webhooks."""
    return {"port": _free_port(), "public_url": f"https://talaria.example/{name}"}


@asynccontextmanager
async def _webhook() -> AsyncIterator[ServedNetwork]:
    yield ServedNetwork({"port": _free_port()})


_Serve = Callable[[], AbstractAsyncContextManager[ServedNetwork]]
_NETWORKS: Mapping[str, _Serve] = {
    "telegram": _telegram,
    "discord": _discord,
    "slack": _slack,
    "matrix": _matrix,
    "email": _email,
    "ntfy": _ntfy,
    "irc": _irc,
    "mattermost": _mattermost,
    "signal": _signal,
    "line": _line,
    "webhook": _webhook,
    "xmpp": _xmpp,
    "teams": _teams,
    "googlechat": _googlechat,
    "feishu": _feishu,
    "whatsapp": _whatsapp,
    "sms": _sms,
}
