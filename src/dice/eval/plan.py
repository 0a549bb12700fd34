"""What a run will do, decided before any work: which problems, how sampled, how judged; and imported runs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dice.config.provenance import provenance
from dice.errors import DataError, UserError
from dice.eval import upstream
from dice.eval.records import Chosen, Generation, Place, RunConfig, Sampling
from dice.eval.store import Store, write_text
from dice.problems import Benchmark, BenchmarkProblem
from dice.sandbox.records import Limits
from dice.verify import Policy, backends
from dice.verify.timing.settings import TimingSettings

MAX_SAMPLES = 1000


def numbers(text: str, what: str) -> tuple[int, ...]:
    """ "1,3-5" as (1, 3, 4, 5). Raises UserError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UserError(f"{what} {text!r}: write numbers and ranges, as in 1,3-5")
        found += range(int(first), int(last if dash else first) + 1)
    if not found:
        raise UserError(f"{what} {text!r} names nothing")
    return tuple(dict.fromkeys(found))


def sampling_of(**values: Any) -> Sampling:
    """The record of these settings. Raises UserError for one out of range."""
    try:
        return Sampling(**values)
    except ValidationError as e:
        first = e.errors()[0]
        raise UserError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from e


def choose(
    benchmark: Benchmark,
    levels: Sequence[int],
    *,
    problem_ids: Sequence[int] | None = None,
    limit: int | None = None,
) -> list[BenchmarkProblem]:
    """Problems of these levels, of them those with these numbers, of them the first `limit` a level.

    Raises UserError for a level or number that does not exist.
    """
    known = sorted({one.level for one in benchmark.problems})
    unknown = [level for level in levels if level not in known]
    if unknown:
        raise UserError(f"{benchmark.source} has no level {unknown[0]}; it has {known}")
    found: list[BenchmarkProblem] = []
    for level in dict.fromkeys(levels):
        ones = [one for one in benchmark.problems if one.level == level]
        if problem_ids is not None:
            there = {one.problem_id for one in ones}
            missing = [number for number in problem_ids if number not in there]
            if missing:
                raise UserError(f"level {level} has no problem {missing[0]}")
            ones = [one for one in ones if one.problem_id in problem_ids]
        found += ones[:limit]
    return found


def chosen(problems: Iterable[BenchmarkProblem]) -> tuple[Chosen, ...]:
    """As a run's record holds them."""
    return tuple(
        Chosen(
            level=one.level,
            problem_id=one.problem_id,
            stem=one.stem,
            code_hash=one.code_hash,
        )
        for one in problems
    )


def place(backend: str, timing: bool) -> Place:
    """Where this machine judges. Raises UserError where that cannot be."""
    if backend == "simt":
        return Place(backend="simt")
    import torch

    return Place(
        backend="cuda", gpu=torch.cuda.get_device_name(backends.visible_gpu()), timing=timing
    )


def policy_record(policy: Policy) -> dict[str, Any]:
    """Every constant of the ruling and of the processes' limits, as a run's record holds them."""
    return asdict(policy)


def policy_from(record: dict[str, Any]) -> Policy:
    """What `policy_record` wrote. Raises DataError for a record of another version."""
    try:
        return Policy(
            **{
                **record,
                "timing": TimingSettings(**record["timing"]),
                "limits": Limits(**record["limits"]),
                "reference_limits": Limits(**record["reference_limits"]),
            }
        )
    except (KeyError, TypeError) as e:
        raise DataError(f"the run's policy is not one of this version: {e}") from e


def same_place(config: RunConfig, here: Place) -> None:
    """Raise UserError where a run would go on elsewhere than it began: results are never mixed."""
    if config.place != here:
        raise UserError(
            f"this run was judged on {describe(config.place)}, this machine offers {describe(here)}; "
            "results of different places are never mixed: start another run"
        )


def describe(one: Place) -> str:
    """For people."""
    if one.backend == "simt":
        return "a CPU (correctness only, sizes reduced)"
    return f"{one.gpu}{'' if one.timing else ', without times'}"


def new_run(
    path: Path,
    benchmark: Benchmark,
    problems: Iterable[BenchmarkProblem],
    *,
    model: dict[str, Any],
    options: dict[str, Any],
    sampling: Sampling,
    here: Place,
    policy: Policy,
) -> Store:
    """Create a run's folder. Raises UserError where one is."""
    config = RunConfig(
        name=path.resolve().name,
        model=model,
        options=options,
        dataset=benchmark.source,
        dataset_version=benchmark.version,
        problems=chosen(problems),
        sampling=sampling,
        place=here,
        policy=policy_record(policy),
        provenance=(provenance(),),
    )
    return Store.create(path, config)


def resumed(store: Store) -> None:
    """Note in a run's record that it goes on, and on what."""
    entries = (*store.config.provenance, provenance())
    store.save(store.config.model_copy(update={"provenance": entries}))


def import_run(
    path: Path,
    folder: Path,
    benchmark: Benchmark,
    *,
    here: Place,
    policy: Policy,
    baselines: dict[str, Path],
) -> Store:
    """Take over candidates that KernelBench's scripts made, and what they said about them.

    Args:
        folder: with `level_1_problem_2_sample_0_kernel.py` and the like, and perhaps `eval_results.json`.
        baselines: timing files by the baseline they hold ("eager", "compile").

    Raises UserError or DataError for what is not in that form, before anything is written.
    """
    kernels = upstream.read_kernels(folder)
    levels = sorted({level for level, _, _ in kernels})
    samples = 1 + max(sample for _, _, sample in kernels)
    if samples > MAX_SAMPLES:
        raise DataError(f"{folder}: a sample is numbered {samples - 1}; at most {MAX_SAMPLES - 1}")
    for level, problem_id, _ in kernels:
        if benchmark.find(level, problem_id) is None:
            raise UserError(
                f"{folder}: level {level} has no problem {problem_id} in {benchmark.source}"
            )
    numbered = {(level, problem_id) for level, problem_id, _ in kernels}
    problems = [one for one in benchmark.problems if one.key in numbered]
    times = {name: upstream.read_baseline(file) for name, file in baselines.items()}
    results: dict[tuple[int, int, int], upstream.ResultRow] = {}
    if (folder / upstream.RESULTS).is_file():
        if len(levels) > 1:
            raise UserError(
                f"{folder / upstream.RESULTS} names no level, and there are candidates of levels {levels}; "
                "import each level from a folder of its own"
            )
        results = upstream.read_results(folder / upstream.RESULTS, levels[0])
    store = new_run(
        path,
        benchmark,
        problems,
        model={"kind": "imported", "from": folder.resolve().name},
        options={},
        sampling=Sampling(samples=samples),
        here=here,
        policy=policy,
    )
    by_key = {one.key: one for one in problems}
    with store:
        for key in sorted(kernels):
            level, problem_id, sample = key
            one = by_key[level, problem_id]
            write_text(store.candidate_file(key), kernels[key])
            store.append(
                Generation(
                    level=level,
                    problem_id=problem_id,
                    sample=sample,
                    code_hash=one.code_hash,
                    seed=0,
                    text=kernels[key],
                    code=kernels[key],
                )
            )
            if key in results:
                own = {
                    name: ms
                    for name, table in times.items()
                    if (ms := table.get((level, one.stem)))
                }
                store.append(upstream.upstream_line(key, results[key], own))
    return store
