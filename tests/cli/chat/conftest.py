"""Scripted model of the chats: titles are requested in parallel with turns, so they have their own answer."""

import pytest

from talaria.testing.model_server import ModelServer, Say


@pytest.fixture
def server(server: ModelServer) -> ModelServer:
    server.answer_when(lambda received: received.is_title_request, Say("A title"))
    return server
