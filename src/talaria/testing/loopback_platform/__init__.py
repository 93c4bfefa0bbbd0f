"""A chat network on loopback: its server, its people, and its adapter."""

from talaria.testing.loopback_platform.adapter import LoopbackPlatform
from talaria.testing.loopback_platform.far_side import FarSide
from talaria.testing.loopback_platform.network import LoopbackNetwork
from talaria.testing.loopback_platform.settings import CHATTY, LoopbackSettings
from talaria.testing.loopback_platform.wire import Fault, Record

__all__ = ["CHATTY", "FarSide", "Fault", "LoopbackNetwork", "LoopbackPlatform", "LoopbackSettings", "Record"]
