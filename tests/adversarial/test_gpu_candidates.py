"""The candidates of the CPU and those that only a GPU can tell, on a GPU: verdicts, not times."""

import pytest

from dice.verify import Judge, Policy
from tests.adversarial.court import Court, files

pytestmark = pytest.mark.gpu

FILES = files("gpu_candidates", part=0, parts=1)


@pytest.fixture(scope="module")
def gpu_court():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    with Judge(Policy(call_s=10.0), backend="cuda") as judge:
        court = Court(judge)
        yield court
    print(f"\non a GPU: {court.summary()}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_candidate_gets_its_verdict_on_a_gpu(gpu_court, file):
    gpu_court.try_file(file)
