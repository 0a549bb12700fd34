"""Nested values with tensors, written to files: the only form in which data cross a process boundary.

A file is a length, a JSON description and raw bytes. Reading one runs no code and trusts no field, so
the judge can read what a hostile process wrote.
"""

import json
import math
import os
import stat
import struct
from dataclasses import dataclass
from typing import Any

import torch

Tree = Any
"""A tensor, a number, a string, None, a `Foreign`, or a list, tuple or dict of trees."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
        *(torch.complex64, torch.complex128),
    )
}
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Something that is neither plain data nor exactly a tensor: a subclass, a lazy object, ..."""

    type_name: str


def save(tree: Tree, path: str) -> None:
    """Write `tree`; what cannot be written becomes a `Foreign`. Raises OSError."""
    blobs: list[torch.Tensor] = []
    description = _describe(tree, blobs, [0], 0)
    head = json.dumps(description).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)))
        file.write(head)
        for blob in blobs:
            file.write(blob.numpy().data)


def load(path: str, *, max_bytes: int = 4 << 30, device: str = "cpu") -> Tree:
    """Read a tree; its tensors own fresh memory on `device`.

    The file is read, not mapped: whoever still holds it open can no longer change what was read. Raises
    ValueError for a malformed file, OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        information = os.fstat(descriptor)
        if not stat.S_ISREG(information.st_mode):
            raise ValueError("not a regular file")
        if information.st_size > max_bytes:
            raise ValueError(f"a file of {information.st_size} bytes")
        data = torch.empty(information.st_size, dtype=torch.uint8)
        view = data.numpy().data
        read = file.readinto(view)
    try:
        (length,) = struct.unpack_from("<Q", view[:read])
        description = json.loads(bytes(view[8 : 8 + length]))
        return _build(description, data[8 + length : read], device, 0)
    except (struct.error, KeyError, TypeError, RuntimeError, RecursionError) as error:
        raise ValueError(f"malformed: {error}") from error


def _describe(tree: Tree, blobs: list[torch.Tensor], at: list[int], depth: int) -> Any:
    if depth > MAX_DEPTH:
        return {"t": "foreign", "type": "deeply nested"}
    if isinstance(tree, torch.Tensor):
        return _describe_tensor(tree, blobs, at)
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"t": "value", "v": tree}
    if isinstance(tree, complex):
        return {"t": "complex", "v": [tree.real, tree.imag]}
    if isinstance(tree, list | tuple):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {"t": kind, "v": [_describe(item, blobs, at, depth + 1) for item in tree]}
    if isinstance(tree, dict):
        items = [[str(key), _describe(item, blobs, at, depth + 1)] for key, item in tree.items()]
        return {"t": "dict", "v": items}
    if isinstance(tree, torch.dtype):
        return {"t": "dtype", "v": str(tree).removeprefix("torch.")}
    if isinstance(tree, torch.Size):
        return {"t": "tuple", "v": [{"t": "value", "v": int(item)} for item in tree]}
    return {"t": "foreign", "type": type(tree).__name__}


def _describe_tensor(tensor: torch.Tensor, blobs: list[torch.Tensor], at: list[int]) -> Any:
    dtype = str(tensor.dtype).removeprefix("torch.")
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not plain or dtype not in _DTYPES or tensor.layout != torch.strided:
        return {"t": "foreign", "type": f"{type(tensor).__name__} ({tensor.layout}, {dtype})"}
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    raw = flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)
    blobs.append(raw)
    entry = {
        "t": "tensor",
        "dtype": dtype,
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "device": tensor.device.type,
        "at": at[0],
    }
    at[0] += raw.numel()
    return entry


def _build(node: Any, data: torch.Tensor, device: str, depth: int) -> Tree:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    kind = node["t"]
    if kind == "tensor":
        return _build_tensor(node, data, device)
    if kind == "value":
        value = node["v"]
        if value is not None and not isinstance(value, bool | int | float | str):
            raise ValueError("a value that is none")
        return value
    if kind == "complex":
        return complex(*node["v"])
    if kind in ("list", "tuple"):
        items = [_build(item, data, device, depth + 1) for item in node["v"]]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {str(key): _build(item, data, device, depth + 1) for key, item in node["v"]}
    if kind == "dtype":
        return _DTYPES[node["v"]]
    return Foreign(type_name=str(node["type"]))


def _build_tensor(node: Any, data: torch.Tensor, device: str) -> torch.Tensor:
    dtype = _DTYPES[node["dtype"]]
    shape = [int(size) for size in node["shape"]]
    count, at = math.prod(shape), int(node["at"])
    size = count * dtype.itemsize
    if min(shape, default=0) < 0 or at < 0 or at + size > data.numel():
        raise ValueError("a tensor outside its file")
    out = torch.empty(shape, dtype=dtype, device=device)
    if count:
        out.view(-1).view(torch.uint8).copy_(data[at : at + size])
    return out


def with_strides(tree: Tree, path: str) -> Tree:
    """`tree` as loaded from `path`, with the strides its dense tensors were saved with."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        description = json.loads(file.read(length))
    return _restride(tree, description)


def _restride(tree: Tree, node: Any) -> Tree:
    if isinstance(tree, torch.Tensor):
        stride = tuple(node["stride"])
        if stride == tree.stride() or tree.numel() < 2 or 0 in stride:
            return tree
        span = 1 + sum((n - 1) * s for n, s in zip(tree.shape, stride, strict=True))
        if span != tree.numel():
            return tree
        return torch.empty_strided(tree.shape, stride, dtype=tree.dtype, device=tree.device).copy_(
            tree
        )
    if isinstance(tree, list | tuple):
        items = [_restride(item, sub) for item, sub in zip(tree, node["v"], strict=True)]
        return tuple(items) if isinstance(tree, tuple) else items
    if isinstance(tree, dict):
        return {key: _restride(tree[key], sub) for key, sub in node["v"]}
    return tree


def tensors(tree: Tree) -> list[torch.Tensor]:
    """All tensors, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, list | tuple):
        return [tensor for item in tree for tensor in tensors(item)]
    if isinstance(tree, dict):
        return [tensor for item in tree.values() for tensor in tensors(item)]
    return []


def map_tensors(tree: Tree, function: Any) -> Tree:
    """The same tree with `function` applied to every tensor."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, list | tuple):
        items = [map_tensors(item, function) for item in tree]
        return tuple(items) if isinstance(tree, tuple) else items
    if isinstance(tree, dict):
        return {key: map_tensors(item, function) for key, item in tree.items()}
    return tree


def devices(path: str) -> list[str]:
    """The device types that the tensors of a file were on. Raises ValueError, OSError."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        description = json.loads(file.read(length))
    found: list[str] = []
    pending = [description]
    while pending:
        node = pending.pop()
        if isinstance(node, dict) and node.get("t") == "tensor":
            found.append(str(node.get("device")))
        elif isinstance(node, dict):
            pending.append(node.get("v"))
        elif isinstance(node, list):
            pending.extend(node)
    return found
