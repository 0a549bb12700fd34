"""Faults planted into correct candidates are found; and each mutator plants what it says."""

import hashlib
import json
from collections import Counter
from random import Random

import pytest

from dice.data.synth import sample_pair
from dice.errors import ToolchainError
from dice.problems.parse import parse_problem
from dice.toolchain.source import BuildOptions
from dice.types import Candidate, VerdictKind
from dice.verify import Judge, Policy
from tests.adversarial.conftest import LIMITS
from tests.adversarial.court import HERE, Expectation
from tests.adversarial.mutate import MUTATORS, difference, mutants, sample

ARGUED = HERE.parents[1] / "benchmarks" / "results" / "mutation_survivors.json"
SEED, COUNT = 0, 40
HONEST = ["row_sum", "row_sum_warp", "row_sum_atomic", "tiled_matmul", "two_outputs", "grid_stride"]
FAMILIES = ["softmax", "norm", "pool", "scan", "rowstat", "loss"]


def originals() -> dict[str, tuple[str, str]]:
    """Name -> problem and candidate; the synthesiser's pairs at their small sizes."""
    found = {}
    for name in HONEST:
        file = HERE / "candidates" / "honest" / f"{name}.py"
        problem = HERE / "problems" / f"{Expectation.of(file).problem}.py"
        found[f"honest_{name}"] = (problem.read_text(), file.read_text())
    draws = [sample_pair(Random(f"mutants:{index}")) for index in range(300)]
    for family in FAMILIES:
        pair = next(one for one in draws if one.family == family)
        found[f"small_{family}"] = (pair.small_code, pair.kernel_code)
    return found


@pytest.fixture(scope="module")
def judge():
    """Without nvcc's opinion, which costs seconds a mutant: what kills them is running them."""
    policy = Policy(seed=0, call_s=3.0, import_s=4.0, limits=LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dice.verify.judge.find_nvcc", lambda: None)
        try:
            judge = Judge(policy, build_options=BuildOptions(timeout_s=20.0, memory_mib=1536))
        except ToolchainError as error:
            pytest.skip(str(error))
    with judge:
        yield judge


def test_seeded_mutants_are_killed_or_argued(judge, capsys):
    """Known misses are survivors that docs/mutants.md explains; a new one fails."""
    files = originals()
    chosen = sample({name: code for name, (_, code) in files.items()}, COUNT, SEED)
    assert len(chosen) == COUNT
    assert len({mutant.mutator for _, mutant in chosen}) >= 25
    arguments = json.loads(ARGUED.read_text())
    prepared, tally, survivors = {}, Counter(), []
    for name, mutant in sorted(chosen, key=lambda one: one[0]):
        problem, code = files[name]
        if name not in prepared:
            prepared[name] = judge.prepare(parse_problem(problem, name=name))
            verdict = judge.judge(prepared[name], Candidate(problem=name, code=code))
            assert verdict.correct, (name, verdict.evidence)
        verdict = judge.judge(prepared[name], Candidate(problem=name, code=mutant.code))
        if verdict.kind is VerdictKind.COMPILE_ERROR:
            tally["stillborn"] += 1
        elif not verdict.correct:
            assert verdict.kind is not VerdictKind.UNTESTABLE
            tally["killed"] += 1
        else:
            diff = difference(code, mutant.code)
            argument = arguments.get(f"{name}/{mutant.mutator}/{mutant.place}")
            same = argument and argument["diff_sha256"] == hashlib.sha256(diff.encode()).hexdigest()
            if same:
                tally[argument["class"]] += 1
            else:
                survivors.append(f"{name}/{mutant.mutator}/{mutant.place}\n{diff}")
    with capsys.disabled():
        print(f"\nseeded mutants: {dict(tally)}, survivors {len(survivors)}")
    assert tally["stillborn"] <= COUNT // 10
    assert not survivors, "\n".join(survivors)
    assert tally["killed"] >= 0.9 * (tally["killed"] + tally["miss"])


KERNEL = """
__global__ void k(const float* x, float* y, int n) {
    __shared__ float part[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int j = 0; j < n; j++) {
        sum += x[i] * 0.5f + expf(x[j]);
    }
    part[threadIdx.x] = fmaxf(sum, 0.0f) / n;
    __syncthreads();
    sum = __shfl_down_sync(0xffffffff, sum, 4) / sqrtf(sum + 1e-5f);
    if (i < n) {
        y[i] = part[threadIdx.x] + x[i];
    }
    atomicAdd(&y[0], sum);
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::zeros({x.size(0), 3}, x.options());
    int n = x.numel();
    auto z = x.contiguous();
    k<<<(n + 31) / 32, 32>>>(z.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""


@pytest.mark.parametrize(
    ("mutator", "expected"),
    [
        ("bound_inclusive", ["j < n -> j <= n", "i < n -> i <= n"]),
        ("bound_short", ["j < n -> j < n - 1", "i < n -> i < n - 1"]),
        ("guard_dropped", ["(i < n) -> (true)"]),
        ("comparison_flipped", ["i < n -> i > n"]),
        ("loop_starts_late", ["int j = 0; -> int j = 1;"]),
        ("loop_stride", ["j++ -> j += 2"]),
        ("barrier_removed", ["__syncthreads() -> "]),
        (
            "shuffle_changed",
            [
                "__shfl_down_sync(0xffffffff, sum, 4) -> __shfl_down_sync(0xffffffff, sum, (4) / 2)",
                "__shfl_down_sync(0xffffffff, sum, 4) -> __shfl_down_sync(0x0000ffff, sum, 4)",
            ],
        ),
        ("atomic_plain", ["atomicAdd(&y[0], sum) -> *(&y[0]) += sum"]),
        (
            "index_term_dropped",
            ["blockIdx.x * blockDim.x + threadIdx.x -> blockIdx.x * blockDim.x"],
        ),
        (
            "strides_swapped",
            ["blockIdx.x * blockDim.x + threadIdx.x -> threadIdx.x * blockDim.x + blockIdx.x"],
        ),
        ("epsilon_dropped", ["sum + 1e-5f -> sum"]),
        (
            "divisor_off_by_one",
            [
                "fmaxf(sum, 0.0f) / n -> fmaxf(sum, 0.0f) / (n - 1)",
                "__shfl_down_sync(0xffffffff, sum, 4) / sqrtf(sum + 1e-5f)"
                " -> __shfl_down_sync(0xffffffff, sum, 4) / (sqrtf(sum + 1e-5f) - 1)",
            ],
        ),
        ("clamp_removed", ["fmaxf(sum, 0.0f) -> sum"]),
        ("initial_value", ["sum = 0.0f -> sum = 1.0f"]),
        ("uninitialised", ["sum = 0.0f -> sum"]),
        ("integer_accumulator", ["float sum = 0.0f; -> int sum = 0.0f;"]),
        ("grid_without_ceiling", ["(n + 31) / 32 -> (n) / 32"]),
        ("wrong_axis", ["x.size(0) -> x.size(1)"]),
        ("wrong_count", ["x.numel() -> x.numel() - 1"]),
        ("contiguous_missing", ["x.contiguous() -> x"]),
        (
            "zeros_forgotten",
            [
                "torch::zeros({x.size(0), 3}, x.options()) -> torch::empty({x.size(0), 3}, x.options())"
            ],
        ),
    ],
)
def test_mutator_plants_its_fault(mutator, expected):
    found = MUTATORS[mutator](KERNEL)
    assert [one.description for one in found] == expected


def test_arithmetic_is_changed_in_data_and_not_in_addresses():
    found = [one.description for one in MUTATORS["operator_changed"](KERNEL)]
    assert "x[i] * 0.5f -> x[i] + 0.5f" in found
    assert "part[threadIdx.x] + x[i] -> part[threadIdx.x] - x[i]" in found
    assert not any("blockDim" in one for one in found)


def test_every_mutation_changes_one_line_and_names_it():
    for name, mutate in MUTATORS.items():
        found = mutate(KERNEL)
        assert found, name
        for one in found:
            changed = one.text.replace("\n#include <cuda_fp16.h>", "", 1).splitlines()
            original = KERNEL.splitlines()
            assert len(changed) == len(original)
            differing = [
                at
                for at, pair in enumerate(zip(changed, original, strict=True), 1)
                if pair[0] != pair[1]
            ]
            assert differing == [one.line], name


def test_only_the_cuda_text_of_a_file_is_changed():
    file = f'import torch\nnote = """a < b"""\nSOURCE = r"""{KERNEL}"""\nsmall = 1 < 2\n'
    found = mutants(file)
    assert len({one.code for one in found}) == len(found) > 40
    for one in found:
        assert one.code.startswith('import torch\nnote = """a < b"""\nSOURCE = r"""')
        assert one.code.endswith('"""\nsmall = 1 < 2\n')
        assert f"@@ -{one.line} +" in difference(file, one.code) or "cuda_fp16" in one.code
    assert {one.line for one in found if one.mutator == "barrier_removed"} == {12}


def test_a_sample_is_seeded_and_spread_over_mutators_and_files():
    files = {str(n): f'A = r"""{KERNEL}"""\nB = {n}\n' for n in range(8)}
    chosen = sample(files, 2 * len(MUTATORS), seed=3)
    assert chosen == sample(files, 2 * len(MUTATORS), seed=3)
    assert chosen != sample(files, 2 * len(MUTATORS), seed=4)
    assert set(Counter(mutant.mutator for _, mutant in chosen).values()) == {2}
    counts = Counter(name for name, _ in chosen)
    assert len(counts) == 8
    assert max(counts.values()) - min(counts.values()) <= 1
