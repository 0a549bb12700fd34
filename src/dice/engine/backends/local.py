"""What backends on this machine have in common: where a model lies, which one it is, where it runs."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import torch

from dice.engine.backends.base import Request
from dice.engine.backends.options import LocalOptions
from dice.models.fetch import DESCRIPTION_FILES, WEIGHT_FILES, find_folder
from dice.models.generation import read_json
from dice.models.load import default_dtype

_CHEAP_TO_HASH = 2**30


def model_type(name: str) -> str | None:
    """What a checkpoint's config says it is; `None` where there is no config."""
    path = find_folder(name, DESCRIPTION_FILES) / "config.json"
    return str(read_json(path).get("model_type")) if path.exists() else None


def dtype_of(options: LocalOptions, device: torch.device) -> torch.dtype:
    """The weights' type."""
    if options.dtype is None:
        return default_dtype(device)
    dtype = getattr(torch, options.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def identity(name: str) -> dict[str, object]:
    """Which weights a name stands for: the hub's revision, and a hash where they are small."""
    folder = find_folder(name, (*DESCRIPTION_FILES, *WEIGHT_FILES)).resolve()
    return {
        "path": None if name == "nano" else str(folder),
        "revision": folder.name if folder.parent.name == "snapshots" else None,
        "weights_sha256": _hash(sorted(folder.glob("*.safetensors"))),
    }


def groups(requests: Iterable[Request], size: int) -> Iterator[list[Request]]:
    """Up to `size` requests at a time, taken when they are wanted."""
    waiting = iter(requests)
    while group := list(islice(waiting, size)):
        yield group


def _hash(files: list[Path]) -> str | None:
    if not files or sum(file.stat().st_size for file in files) > _CHEAP_TO_HASH:
        return None
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
