"""Where inputs come from and results go. Knows nothing of the engine, the scheduler or models."""

from edgeengine.io.array import ArraySource, read_wav
from edgeengine.io.generated import Fixed, make_source
from edgeengine.io.opening import opened
from edgeengine.io.replay import StreamReplay
from edgeengine.io.sensor import SerialSensor
from edgeengine.io.sink import CallbackSink, SerialSink, Sink
from edgeengine.io.source import Source

__all__ = [
    "ArraySource",
    "CallbackSink",
    "Fixed",
    "SerialSensor",
    "SerialSink",
    "Sink",
    "Source",
    "StreamReplay",
    "make_source",
    "opened",
    "read_wav",
]
