"""Files of nested tensors: what goes in comes out, and malformed files are refused."""

import json
import struct

import pytest
import torch

from dice.verify import trees

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_survives_the_file(tmp_path, dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    trees.save(tensor, str(tmp_path / "t"))
    back = trees.load(str(tmp_path / "t"))
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


def test_structure_survives_the_file(tmp_path):
    tree = [torch.tensor(2.5), (1, "a", None, True), {"k": [torch.empty(0, 2), 1.5]}, float("inf")]
    trees.save(tree, str(tmp_path / "t"))
    back = trees.load(str(tmp_path / "t"))
    assert torch.equal(back[0], tree[0])
    assert back[1] == tree[1]
    assert back[2]["k"][0].shape == (0, 2)
    assert back[3] == float("inf")


def test_strides_of_dense_tensors_can_be_restored(tmp_path):
    path = str(tmp_path / "t")
    tensor = torch.arange(12.0).reshape(3, 4).t()
    trees.save([tensor], path)
    (back,) = trees.with_strides(trees.load(path), path)
    assert back.stride() == (1, 4)
    assert torch.equal(back, tensor)


def test_anything_else_becomes_foreign(tmp_path):
    class Lazy(torch.Tensor):
        pass

    trees.save([torch.ones(2).as_subclass(Lazy), object()], str(tmp_path / "t"))
    lazy, other = trees.load(str(tmp_path / "t"))
    assert isinstance(lazy, trees.Foreign)
    assert isinstance(other, trees.Foreign)


@pytest.mark.parametrize(
    "head",
    [
        {"t": "tensor", "dtype": "float32", "shape": [1 << 40], "stride": [1], "at": 0},
        {"t": "tensor", "dtype": "float32", "shape": [-2, -2], "stride": [1], "at": 0},
        {"t": "tensor", "dtype": "float32", "shape": [1], "stride": [1], "at": -4},
        {"t": "tensor", "dtype": "object", "shape": [1], "stride": [1], "at": 0},
        {"t": "value", "v": {"x": 1}},
        {"t": "list"},
        [],
    ],
)
def test_malformed_files_are_refused(tmp_path, head):
    text = json.dumps(head).encode()
    (tmp_path / "t").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(ValueError, match=r"malformed|outside|value|float32|object|index"):
        trees.load(str(tmp_path / "t"))


def test_links_are_not_followed(tmp_path):
    trees.save(1, str(tmp_path / "t"))
    (tmp_path / "link").symlink_to(tmp_path / "t")
    with pytest.raises(OSError, match="symbolic"):
        trees.load(str(tmp_path / "link"))
