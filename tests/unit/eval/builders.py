"""Small runs for the tests of evaluation, made by hand."""

from pathlib import Path

from dice.eval.records import (
    Chosen,
    Generation,
    Judged,
    Place,
    RunConfig,
    Sampling,
    plain_verdict,
)
from dice.eval.store import Store
from dice.types import Evidence, Runtime, Speedup, Timing, Verdict, VerdictKind

CODE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def runtime(median_us: float) -> Runtime:
    return Runtime(
        median_us=median_us,
        p10_us=0.9 * median_us,
        p90_us=1.1 * median_us,
        clock_us=median_us,
        calls=100,
        batches=9,
    )


def timing(speedup: float, *, over: str = "eager", refused: str | None = None) -> Timing:
    """A candidate that takes 100 us, beside a baseline that takes `speedup` times as long."""
    one = Speedup(over=over, value=speedup, low=speedup, high=speedup, confidence=0.95)
    return Timing(
        runtime=runtime(100.0),
        baselines={over: runtime(100.0 * speedup)},
        speedups=(one,),
        refused=refused,
        gbps=1.0,
        tflops=0.0,
        peak_gbps=2.0,
        peak_tflops=1.0,
        gpu="a GPU",
    )


def verdict(kind: str, *, speedup: float | None = None, refused: str | None = None) -> Verdict:
    right = kind in ("correct", "no_custom_kernel")
    return Verdict(
        kind=VerdictKind(kind),
        evidence=(Evidence(kind=kind, message=f"it is {kind}"),),
        attribution={"correct": "custom", "no_custom_kernel": "pytorch"}.get(kind),
        outputs_match=True if right else None,
        timing=None if speedup is None else timing(speedup, refused=refused),
    )


def config(problems: int = 2, samples: int = 1, **changes: object) -> RunConfig:
    values: dict[str, object] = {
        "name": "run",
        "model": {"kind": "fake"},
        "dataset": "kb.jsonl",
        "dataset_version": "unknown+0",
        "problems": tuple(
            Chosen(level=1, problem_id=n, stem=f"{n}_Some", code_hash=f"hash{n}")
            for n in range(1, problems + 1)
        ),
        "sampling": Sampling(samples=samples),
        "place": Place(backend="simt"),
        "policy": {},
    }
    return RunConfig.model_validate({**values, **changes})


def fill(
    path: Path,
    table: dict[tuple[int, int], Verdict | str | None],
    *,
    problems: int = 2,
    samples: int = 1,
    **changes: object,
) -> Store:
    """A run on disk. `table` has for (problem, sample) a verdict, a failure, or None for "not judged"."""
    store = Store.create(path, config(problems, samples, **changes))
    with store:
        for (problem_id, sample), outcome in table.items():
            failure = outcome if isinstance(outcome, str) else None
            store.append(
                Generation(
                    level=1,
                    problem_id=problem_id,
                    sample=sample,
                    code_hash=f"hash{problem_id}",
                    seed=sample,
                    text="" if failure else f"# {problem_id} {sample}",
                    code="" if failure else f"# {problem_id} {sample}",
                    failure=failure,
                    completion_tokens=100,
                    forwards=40,
                    seconds=2.0,
                )
            )
            if isinstance(outcome, Verdict):
                store.append(
                    Judged(
                        level=1,
                        problem_id=problem_id,
                        sample=sample,
                        verdict=plain_verdict(outcome),
                    )
                )
    return store
