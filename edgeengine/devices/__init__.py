"""Devices: what this machine offers, what described devices offer, and the providers that run subgraphs."""

from edgeengine.devices.machine import device_id, discover, usable_cores
from edgeengine.devices.profiles import list_profiles, load_profile
from edgeengine.spec.device import DeviceProfile

__all__ = ["DeviceProfile", "device_id", "discover", "list_profiles", "load_profile", "usable_cores"]
