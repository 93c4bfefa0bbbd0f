"""A chat network on loopback: its server, its people, and its adapter."""

from talaria.testing.loopback_platform.adapter import CHATTY, FarSide, LoopbackPlatform, LoopbackSettings
from talaria.testing.loopback_platform.network import LoopbackNetwork
from talaria.testing.loopback_platform.wire import Fault, Record

__all__ = ["CHATTY", "FarSide", "Fault", "LoopbackNetwork", "LoopbackPlatform", "LoopbackSettings", "Record"]
