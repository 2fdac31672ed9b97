"""One execution provider on one piece of hardware, as sessions ask for it: built into ONNX Runtime, or from a plugin library."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import onnxruntime as ort

from edgeengine.devices.providers.ort import first_line
from edgeengine.errors import DeviceError

_registering = threading.Lock()
_registered: set[str] = set()  # this process's: a library is registered for good


class Target(msgspec.Struct, frozen=True):
    """`kind` and `index` choose among the hardware devices that the provider lists; `library` is "" for a built-in provider.

    `options` are the provider's own, `entries` session configuration entries. `static`: it takes only graphs whose shapes are
    fixed. `context`: it can write what it compiled as an EP-context model, and read that back.
    """

    provider: str
    kind: str
    index: int = 0
    library: str = ""
    options: dict[str, str] = {}
    entries: dict[str, str] = {}
    static: bool = False
    context: bool = False


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """What libraries write to standard output goes to standard error: ours may be read as one document.

    Process-wide while it lasts, so only around the creation of a session.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # it is closed: nothing to protect
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        if sys.platform != "win32":
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def register(target: Target) -> None:
    """Make a plugin's provider known to this process, once. Raises DeviceError where its library cannot be loaded."""
    if not target.library:
        return
    with _registering:
        # An application may have registered it; one that lists no device is only in our own record.
        if target.provider in _registered or any(d.ep_name == target.provider for d in ort.get_ep_devices()):
            return
        try:
            ort.register_execution_provider_library(target.provider, target.library)
        except Exception as e:  # ONNX Runtime's errors have no common base below Exception
            raise DeviceError(f"{target.provider}: its library {target.library} cannot be loaded: {first_line(e)}") from e
        _registered.add(target.provider)


def hardware(target: Target) -> tuple[list[ort.OrtEpDevice], bool]:
    """(the provider's devices of the kind wanted, whether they are emulated on the CPU). Empty where it lists none.

    An NPU whose hardware device is a CPU is an emulator: Qualcomm's HTP library for x86-64 is one.
    """
    listed = [d for d in ort.get_ep_devices() if d.ep_name == target.provider]
    real = [d for d in listed if d.device.type.name.lower() == target.kind]
    standing_in = [d for d in listed if d.device.type.name == "CPU"]
    return (real, False) if real else (standing_in, bool(standing_in))


def ask(target: Target, options: ort.SessionOptions) -> list[tuple[str, dict[str, str]]] | None:
    """Put a plugin's device into session options, or return what InferenceSession wants to hear of a built-in provider.

    Raises DeviceError where the target is not here.
    """
    register(target)
    if not target.library:
        return [(target.provider, target.options)]
    devices, _ = hardware(target)
    if target.index >= len(devices):
        raise DeviceError(f"{target.provider} lists no {target.kind} on this machine; is its driver installed?")
    options.add_provider_for_devices([devices[target.index]], target.options)
    return None
