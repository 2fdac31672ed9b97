"""Split and windows: nothing that is tested was trained on. Needs numpy only."""

import numpy as np
import pytest

from edgeengine_converters import ConversionError
from edgeengine_converters.watch import data
from edgeengine_converters.watch.source import Recording


def marked(count: int, start: int = 0) -> np.ndarray:
    """[count, 6] samples that say where they came from: every value of a row is the row's own number."""
    return np.repeat(np.arange(start, start + count, dtype=np.float32)[:, None], 6, axis=1)


def generated(seed: int) -> list[Recording]:
    """Recordings of random lengths (some too short for a window) with numbers that never repeat."""
    rng = np.random.default_rng(seed)
    subjects = [one for pair in data.PAIRS for one in pair]
    recordings, start = [], 0
    for index in range(12):
        count = 600 if index == 0 else int(rng.integers(1, 900))
        recordings.append(
            Recording(marked(count, start), int(rng.integers(7)), int(rng.choice(subjects)), index % 2)
        )
        start += count
    return recordings


def owners(recordings: list[Recording]) -> np.ndarray:
    """For each sample number, which recording it is in and in which half."""
    return np.concatenate(
        [
            2 * index + (np.arange(len(item.samples)) >= len(item.samples) // 2)
            for index, item in enumerate(recordings)
        ]
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("length", "hop"), [(128, 25), (160, 16), (128, 128), (1, 1), (7, 200)])
def test_windows_stay_in_their_part(seed: int, length: int, hop: int) -> None:
    recordings = generated(seed)
    owner = owners(recordings)
    train = data.train_windows(recordings, length, hop)
    test = data.test_windows(recordings)
    for windows, half in ((train, 0), (test, 1)):
        numbers = windows.values.astype(np.int64)
        assert windows.values.dtype == np.float32 and windows.labels.dtype == np.int64
        # Consecutive in time, the same in all six channels.
        assert (np.diff(numbers, axis=2) == 1).all() and (numbers == numbers[:, :1]).all()
        held = owner[numbers[:, 0]]
        assert (held == held[:, :1]).all(), "a window crosses a border"
        assert (held[:, 0] % 2 == half).all()
        assert [recordings[one // 2].label for one in held[:, 0]] == windows.labels.tolist()
    assert not set(train.values.ravel()) & set(test.values.ravel()), "train and test share a sample"


@pytest.mark.parametrize("count", [255, 256, 257, 511, 513])
def test_parts_make_up_the_recording(count: int) -> None:
    samples = marked(count)
    train, test = data.train_part(samples), data.test_part(samples)
    assert len(train) == count // 2
    assert np.array_equal(np.concatenate([train, test]), samples)


@pytest.mark.parametrize(("count", "expected"), [(127, 0), (128, 1), (152, 1), (153, 2), (178, 3)])
def test_cut_takes_every_whole_window(count: int, expected: int) -> None:
    windows = data.cut(marked(count), 128, 25)
    assert windows.shape == (expected, 6, 128)
    assert windows[:, 0, 0].tolist() == [25 * index for index in range(expected)]


def test_cut_refuses_no_hop() -> None:
    with pytest.raises(ConversionError, match="at least 1"):
        data.cut(marked(200), 128, 0)


def test_no_window_is_an_error() -> None:
    with pytest.raises(ConversionError, match="no window of 128 samples"):
        data.test_windows([Recording(marked(200), 0, 1, 0)])


@pytest.mark.parametrize("subject", range(1, 11))
def test_subject_and_partner_are_absent_from_training(subject: int) -> None:
    recordings = [Recording(marked(300), 0, one, side) for one in range(1, 11) for side in (0, 1)]
    partner = data.partner_of(subject)
    assert partner != subject and data.partner_of(partner) == subject
    kept = {(item.subject, item.side) for item in data.training_recordings(recordings, subject)}
    assert kept == {(one, side) for one in range(1, 11) for side in (0, 1) if one not in (subject, partner)}
    assert {item.subject for item in data.tested_recordings(recordings, subject)} == {subject}


def test_pairs_cover_ten_subjects_once() -> None:
    assert sorted(one for pair in data.PAIRS for one in pair) == list(range(1, 11))


@pytest.mark.parametrize("subject", [0, 11, -1])
def test_unknown_subject(subject: int) -> None:
    with pytest.raises(ConversionError, match=f"subject {subject}: unknown subject"):
        data.training_recordings([], subject)


def test_missing_recordings() -> None:
    only = [Recording(marked(300), 0, 1, 0)]
    with pytest.raises(ConversionError, match="no recording of anyone else"):
        data.training_recordings(only, 2)
    with pytest.raises(ConversionError, match="no recording"):
        data.tested_recordings(only, 3)
