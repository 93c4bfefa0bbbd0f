"""A strict Slack workspace on loopback: Web API and Socket Mode, with simulated people."""

from talaria.testing.slack_server.channel import Channel
from talaria.testing.slack_server.server import APP_TOKEN, TOKEN, SlackServer
from talaria.testing.slack_server.world import Message, User

__all__ = ["APP_TOKEN", "TOKEN", "Channel", "Message", "SlackServer", "User"]
