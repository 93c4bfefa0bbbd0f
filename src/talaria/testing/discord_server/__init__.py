"""A strict Discord server on loopback, HTTP and gateway, with simulated people."""

from talaria.testing.discord_server.channels import Person, Post
from talaria.testing.discord_server.server import TOKEN, Call, DiscordServer
from talaria.testing.discord_server.world import Interaction, Room

__all__ = ["TOKEN", "Call", "DiscordServer", "Interaction", "Person", "Post", "Room"]
