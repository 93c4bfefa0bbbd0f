"""Gateway in the process of the test: messages from a network become turns and replies, without periodic checks.

A missed message stays unanswered here; a real gateway looks for pending ones every second.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from msgspec import structs
from tests.storage.engines import create_empty_store

from talaria.app.application import TalariaApplication, open_application
from talaria.app.gateway.media import MediaServices, open_media
from talaria.commands.command import select_usable_commands
from talaria.commands.registry import REGISTRY
from talaria.contracts.platform import Platform
from talaria.contracts.turns import TurnFollowUp
from talaria.core.addresses import Address, audience_of
from talaria.core.aio import SupervisedTaskGroup
from talaria.core.ids import SessionId, new_worker_id
from talaria.gateway.admission import find_chat_owner
from talaria.gateway.chats.chat import Chat, NetworkContext
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.dispatcher import Dispatcher
from talaria.gateway.outbound.delivery import Delivery
from talaria.gateway.outbound.preview import PreviewOptions
from talaria.gateway.receiver import Receiver
from talaria.runtime.agent_cache import AgentSpec
from talaria.runtime.open_session import OpenRequest, ResumeSession, SurfaceInfo
from talaria.runtime.turns import TurnOptions
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets

_LEASE = timedelta(seconds=15)


@dataclass(frozen=True)
class InProcessGateway:
    application: TalariaApplication
    chats: ChatRegistry
    dispatcher: Dispatcher
    network: Receiver
    spec_checks: list[SessionId]


@asynccontextmanager
async def run_gateway(
    home: Path,
    platform: Platform,
    model: str,
    *,
    settings: str = "",
    provider: str = "",
    follower: TurnFollowUp | None = None,
) -> AsyncIterator[InProcessGateway]:
    """Serve a network while the block runs; ``follower`` is called after turns.

    ``settings`` are lines for config.toml that start in its section ``access``; ``provider`` are lines for the model's.
    """
    profile = Profiles(home).active()
    profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    profile.config_file.write_text(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        f"{provider}[access]\neveryone = true\n{settings}"
    )
    create_empty_store(profile.database_file)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    async with SupervisedTaskGroup() as jobs, AsyncExitStack() as stack:
        loaded = load_settings(profile, environment)
        application = open_application(loaded, profile, read_secrets(profile, environment), environment, stack)
        application.processes.supervise_within(jobs, stack, always=True)
        delivery = Delivery(application.store, platform)
        worker = new_worker_id()
        preview = PreviewOptions(store=application.store, platform=platform, throttle=delivery.throttle, worker=worker)
        media = open_media(application, {platform.name: platform}, stack)
        network_context = NetworkContext(
            application=application,
            abilities=platform.abilities,
            preview=preview,
            settings=application.settings_admin,
            voice=media.spoken,
        )
        maker = _ChatFactory(network_context, home, jobs, follower, media)
        chats = ChatRegistry(application.store, worker, maker, maker.agent_spec, jobs, application.settings_admin)
        stack.push_async_callback(chats.close)
        commands = select_usable_commands(REGISTRY, terminal=False)
        dispatcher = Dispatcher(
            application.store,
            platform.name,
            application.settings_admin,
            lambda: commands,
            chats,
            end_workspace=application.end_workspace,
            hooks=application.hooks,
        )
        network = Receiver(
            platform,
            application.store,
            dispatcher.receive,
            lease=_LEASE,
            reply_during_outage=dispatcher.reply_during_outage,
        )
        serving = [jobs.create_task(network.serve()), jobs.create_task(delivery.serve())]
        yield InProcessGateway(application, chats, dispatcher, network, maker.spec_checks)
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


class _ChatFactory:
    """Create chats and the specifications of their agents."""

    def __init__(
        self,
        network_context: NetworkContext,
        folder: Path,
        jobs: asyncio.TaskGroup,
        follower: TurnFollowUp | None,
        media: MediaServices,
    ) -> None:
        self._network = network_context
        self._folder = folder
        self._jobs = jobs
        self._unpack = media.attachment_fetcher.unpack
        self.spec_checks: list[SessionId] = []
        self._more = () if follower is None else (follower,)

    async def agent_spec(self, address: Address, session_id: SessionId) -> AgentSpec:
        self.spec_checks.append(session_id)
        return await self._network.application.agent_spec(
            structs.replace(self._make_request(address.platform), session=ResumeSession(session_id))
        )

    def __call__(self, key: str, address: Address) -> Chat:
        shared = find_chat_owner(address, self._network.options)
        request = structs.replace(self._make_request(address.platform), owner=shared, audience=audience_of(address))
        return Chat(key, address, request, self._network, self._jobs)

    def _make_request(self, platform: str) -> OpenRequest:
        follow_ups = self._more
        return OpenRequest(
            surface=SurfaceInfo(
                source=platform, folder=self._folder, lasting=True, file_limit=self._network.abilities.file_limit
            ),
            titled=False,
            turns=TurnOptions(follow_ups=follow_ups, unpack=self._unpack),
        )
