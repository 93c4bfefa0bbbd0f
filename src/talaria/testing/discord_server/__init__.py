"""A strict Discord on loopback, HTTP and gateway, with the people who write to the bot."""

from talaria.testing.discord_server.places import Person, Post
from talaria.testing.discord_server.room import Room
from talaria.testing.discord_server.server import TOKEN, Call, DiscordServer
from talaria.testing.discord_server.world import Asked

__all__ = ["TOKEN", "Asked", "Call", "DiscordServer", "Person", "Post", "Room"]
