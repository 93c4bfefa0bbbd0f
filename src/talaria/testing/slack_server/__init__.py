"""A strict Slack workspace on loopback: Web API and Socket Mode, with simulated people."""

from talaria.testing.slack_server.server import APP_TOKEN, TOKEN, Channel, SlackServer
from talaria.testing.slack_server.world import Message, User

__all__ = ["APP_TOKEN", "TOKEN", "Channel", "Message", "SlackServer", "User"]
