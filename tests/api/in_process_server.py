"""The API in this process, over a real application with a scripted model server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.app.program_with_model import scripted_program
from tests.http.loopback_client import loopback_client

from talaria.access.api_keys import read_key_file
from talaria.app.api import open_api
from talaria.app.application import TalariaApplication, open_application
from talaria.core.aio import SupervisedTaskGroup
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets
from talaria.testing.model_server import ModelServer

PATIENCE = 60.0


@dataclass(frozen=True)
class Hosted:
    """``url`` is the address without ``/v1``; ``http`` is a client with ``key``, the first API key."""

    application: TalariaApplication
    url: str
    http: httpx.AsyncClient
    key: str = ""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@asynccontextmanager
async def hosted(home: Path, model: ModelServer, settings: str = "", secrets: str = "") -> AsyncIterator[Hosted]:
    """Serve while the block runs, with these settings and secrets in addition to the model's."""
    environment = scripted_program(home, model, settings, secrets).environment()
    profile = Profiles(home).active()
    async with SupervisedTaskGroup() as jobs, AsyncExitStack() as stack:
        known = load_settings(profile, environment), profile, read_secrets(profile, environment)
        application = open_application(*known, environment, stack)
        url = await stack.enter_async_context(open_api(application, jobs, port=0))
        key = read_key_file(profile)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        http = loopback_client(url, headers=headers, timeout=PATIENCE)
        await stack.enter_async_context(http)
        yield Hosted(application, url, http, key)
