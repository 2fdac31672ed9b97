"""Where inputs come from. Knows nothing of the engine, the scheduler or models."""

from edgeengine.io.generated import Fixed, make_source
from edgeengine.io.replay import StreamReplay
from edgeengine.io.source import Source

__all__ = ["Fixed", "Source", "StreamReplay", "make_source"]
