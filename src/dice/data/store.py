"""Many tokenised pairs in three flat arrays, so that a hundred thousand of them load in a moment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dice.errors import DataError
from dice.types import TrainingSample


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStore:
    """Tokenised pairs. Sample i is `tokens[offsets[i]:offsets[i + 1]]`; its first `prompt_lengths[i]`
    tokens are the prompt, the rest are labels, the stop token included."""

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    """One more entry than there are samples."""
    prompt_lengths: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    def __getitem__(self, index: int) -> TrainingSample:
        ids = self.tokens[self.offsets[index] : self.offsets[index + 1]]
        return TrainingSample(
            token_ids=tuple(int(i) for i in ids), prompt_length=int(self.prompt_lengths[index])
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample."""
        return np.diff(self.offsets)

    def select(self, indices: Sequence[int]) -> "SampleStore":
        """A store of some of the samples, in the given order."""
        return SampleStore.from_samples(self[i] for i in indices)

    @staticmethod
    def from_samples(samples: Iterable[TrainingSample]) -> "SampleStore":
        """Flatten `samples`.

        Raises:
            DataError: a sample has no label token.
        """
        flat: list[int] = []
        ends, prompts = [0], []
        for number, sample in enumerate(samples):
            if not 0 <= sample.prompt_length < len(sample.token_ids):
                raise DataError(f"sample {number} has no token after its prompt to learn from")
            flat.extend(sample.token_ids)
            ends.append(len(flat))
            prompts.append(sample.prompt_length)
        return SampleStore(
            tokens=np.asarray(flat, dtype=np.int32),
            offsets=np.asarray(ends, dtype=np.int64),
            prompt_lengths=np.asarray(prompts, dtype=np.int32),
        )

    def save(self, path: Path) -> None:
        """Write an uncompressed .npz, under a temporary name first."""
        temporary = path.with_suffix(".tmp.npz")
        np.savez(
            temporary,
            tokens=self.tokens,
            offsets=self.offsets,
            prompt_lengths=self.prompt_lengths,
        )
        temporary.replace(path)

    @staticmethod
    def load(path: Path) -> "SampleStore":
        """Read what `save` wrote.

        Raises:
            DataError: the file is missing or is no store.
        """
        try:
            with np.load(path) as arrays:
                return SampleStore(
                    tokens=arrays["tokens"],
                    offsets=arrays["offsets"],
                    prompt_lengths=arrays["prompt_lengths"],
                )
        except (OSError, KeyError, ValueError) as e:
            raise DataError(f"{path} is not a file of tokenised samples: {e}") from e
