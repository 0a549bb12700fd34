from pathlib import Path

import pytest

from dice.data.store import SampleStore
from dice.errors import DataError
from dice.types import TrainingSample

SAMPLES = [
    TrainingSample(token_ids=(5, 6, 7, 2), prompt_length=2),
    TrainingSample(token_ids=(9, 2), prompt_length=0),
]


def test_samples_come_back_as_they_went_in(tmp_path: Path) -> None:
    store = SampleStore.from_samples(SAMPLES)
    store.save(tmp_path / "samples.npz")
    loaded = SampleStore.load(tmp_path / "samples.npz")
    assert [loaded[i] for i in range(len(loaded))] == SAMPLES
    assert loaded.lengths.tolist() == [4, 2]
    assert loaded.select([1])[0] == SAMPLES[1]


def test_a_sample_without_labels_is_refused() -> None:
    with pytest.raises(DataError, match="no token after its prompt"):
        SampleStore.from_samples([TrainingSample(token_ids=(1, 2), prompt_length=2)])


def test_a_missing_or_foreign_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"samples\.npz"):
        SampleStore.load(tmp_path / "samples.npz")
