"""What the worker on a GPU does to memory and makes of it, as far as a CPU can tell."""

import pytest
import torch

from dice.verify.gpu_worker import GpuWorker, fill_fresh_memory


@pytest.fixture
def filled():
    fill_fresh_memory(True)
    yield
    fill_fresh_memory(False)


def test_fresh_memory_cannot_hold_a_right_answer(filled):
    assert torch.empty(5).isnan().all()
    assert (torch.empty(5, dtype=torch.int32) == torch.iinfo(torch.int32).max).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.bool])
def test_a_digest_tells_values_and_their_places_apart(dtype):
    digest = GpuWorker.__new__(GpuWorker).digest
    tensor = torch.tensor([1, 0, 1, 1, 0, 1, 0]).to(dtype)
    assert digest(tensor) == digest(tensor.clone())
    changed = tensor.clone()
    changed[2] = 0
    swapped = tensor[[2, 1, 3, 0, 4, 6, 5]]
    assert len({digest(one) for one in (tensor, changed, swapped, tensor[:6])}) == 4
    assert digest(torch.empty(0, dtype=dtype)) == digest(torch.empty(0, dtype=dtype))
