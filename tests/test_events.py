"""Event logs as files."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine import events
from edgeengine.events import LogLine, dump_log, load_log


def of(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    number = st.floats(allow_nan=False, allow_infinity=False)
    values = {int: st.integers(0, 2**62), float: number, str: st.text(max_size=8), bool: st.booleans()}
    fields = {f.name: values.get(f.type, st.one_of(st.none(), values[int])) for f in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


EVENTS = st.one_of([of(c) for c in events.Event.__subclasses__()])
ACTIONS = st.one_of([of(c) for c in events.Action.__subclasses__()])
LOGS = st.lists(st.builds(LogLine, EVENTS, st.lists(ACTIONS, max_size=3)), max_size=5)


@given(LOGS)
def test_log_comes_back_from_its_bytes_one_line_per_step(log: list[LogLine]) -> None:
    data = dump_log(log)
    assert load_log(data) == log
    assert data.count(b"\n") == len(log)
    assert dump_log(load_log(data)) == data


def test_every_event_and_action_has_a_tag_of_its_own() -> None:
    tags = [c.__struct_config__.tag for base in (events.Event, events.Action) for c in base.__subclasses__()]
    assert len(tags) == 17
    for base in (events.Event, events.Action):
        own = [c.__struct_config__.tag for c in base.__subclasses__()]
        assert len(set(own)) == len(own)


@pytest.mark.parametrize("data", [b"{}\n", b'{"event":{"event":"exploded","at_ns":1},"actions":[]}\n', b"nothing\n"])
def test_what_is_no_log_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        load_log(data)
