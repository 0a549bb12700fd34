"""KernelBench's own files, read and written, so that its runs can be judged here and ours analysed there.

    level_L_problem_P_sample_S_kernel.py   one candidate
    eval_results.json                      {"P": [{"sample_id", "compiled", "correctness", "metadata",
                                           "runtime", "runtime_stats"}, ...]}, of one level; older runs
                                           have one object instead of the list
    baseline_time_NAME.json                {"levelL": {"file.py": {"mean", "std", "min", "max",
                                           "num_trials", "hardware", "device"}}}

Times there are milliseconds, -1 where none was measured.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dice.errors import DataError
from dice.eval.outcomes import Outcome
from dice.eval.records import Key, Upstream
from dice.eval.store import write_text
from dice.types import Runtime, VerdictKind

KERNEL_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
RESULTS = "eval_results.json"
_COMPILED = frozenset(
    (
        *(VerdictKind.CORRECT, VerdictKind.WRONG, VerdictKind.UNSAFE, VerdictKind.LAUNCH_ERROR),
        *(VerdictKind.NO_CUSTOM_KERNEL, VerdictKind.HACK),
    )
)


class ResultRow(BaseModel):
    """One sample in `eval_results.json`; keys of later versions are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sample_id: int = 0
    compiled: bool = False
    correctness: bool = False
    runtime: float = -1.0


class BaselineRow(BaseModel):
    """One problem's time."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    mean: float


Results: TypeAlias = dict[str, list[ResultRow] | ResultRow]
Baselines: TypeAlias = dict[str, dict[str, BaselineRow]]
_RESULTS: TypeAdapter[Results] = TypeAdapter(Results)
_BASELINES: TypeAdapter[Baselines] = TypeAdapter(Baselines)


def read_kernels(folder: Path) -> dict[Key, str]:
    """Every candidate file of a run. Raises DataError where there is none or one cannot be read."""
    found: dict[Key, str] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if match := KERNEL_FILE.fullmatch(path.name):
            level, problem_id, sample = map(int, match.groups())
            try:
                found[level, problem_id, sample] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as e:
                raise DataError(f"{path} cannot be read: {e}") from e
    if not found:
        raise DataError(
            f"{folder} holds no candidate: files are named level_1_problem_2_sample_0_kernel.py"
        )
    return found


def read_results(path: Path, level: int) -> dict[Key, ResultRow]:
    """One level's `eval_results.json`. Raises DataError."""
    found: dict[Key, ResultRow] = {}
    for number, rows in _read(path, _RESULTS).items():
        if not number.isdigit():
            raise DataError(f"{path}: {number!r} is no problem number")
        for row in rows if isinstance(rows, list) else [rows]:
            found[level, int(number), row.sample_id] = row
    return found


def read_baseline(path: Path) -> dict[tuple[int, str], float]:
    """Milliseconds by level and file name without ".py". Raises DataError."""
    found: dict[tuple[int, str], float] = {}
    for name, rows in _read(path, _BASELINES).items():
        level = name.removeprefix("level")
        if not level.isdigit():
            raise DataError(f'{path}: {name!r} is no level; a key is "level1"')
        for stem, row in rows.items():
            if row.mean > 0:
                found[int(level), stem.removesuffix(".py")] = row.mean
    return found


def upstream_line(key: Key, row: ResultRow, baseline_ms: dict[str, float]) -> Upstream:
    """The log's line for what an imported run said of one candidate."""
    level, problem_id, sample = key
    return Upstream(
        level=level,
        problem_id=problem_id,
        sample=sample,
        compiled=row.compiled,
        correctness=row.correctness,
        runtime_ms=row.runtime if row.runtime > 0 else None,
        baseline_ms=baseline_ms,
    )


def write_results(folder: Path, outcomes: Iterable[Outcome]) -> list[Path]:
    """One `eval_results.json` for KernelBench's analysis, which has one level per run folder.

    With several levels the files are `level_L/eval_results.json`. The judge's verdict is in `metadata`.
    """
    levels: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for one in outcomes:
        if one.verdict is None:
            continue
        rows = levels.setdefault(one.level, {}).setdefault(str(one.problem_id), [])
        rows.append(_result(one))
    written = []
    for level, problems in sorted(levels.items()):
        place = folder if len(levels) == 1 else folder / f"level_{level}"
        place.mkdir(exist_ok=True)
        ordered = dict(sorted(problems.items(), key=lambda pair: int(pair[0])))
        write_text(place / RESULTS, json.dumps(ordered, indent=4) + "\n")
        written.append(place / RESULTS)
    return written


def _result(one: Outcome) -> dict[str, Any]:
    verdict = one.verdict
    assert verdict is not None
    timing = verdict.timing if verdict.timing and verdict.timing.refused is None else None
    evidence = verdict.evidence[0] if verdict.evidence else None
    return {
        "sample_id": one.sample,
        "compiled": verdict.kind in _COMPILED,
        "correctness": one.correct,
        "metadata": {
            "hardware": timing.gpu if timing else verdict.backend,
            "dice_verdict": str(verdict.kind),
            "dice_evidence": ""
            if evidence is None
            else f"{evidence.kind}: {evidence.message}"[:500],
        },
        "runtime": _ms(timing.runtime) if timing else -1.0,
        "runtime_stats": _stats(timing.runtime, timing.gpu) if timing else {},
    }


def write_baselines(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """`baseline_time_NAME.json` for each baseline that was measured beside a candidate."""
    tables: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for one in outcomes:
        timing = one.verdict.timing if one.verdict else None
        for name, runtime in (timing.baselines if timing else {}).items():
            file = {"eager": "torch", "compile": "torch_compile_inductor_default"}.get(name, name)
            level = tables.setdefault(file, {}).setdefault(f"level{one.level}", {})
            assert timing is not None
            level.setdefault(f"{one.stem}.py", _stats(runtime, timing.gpu))
    written = []
    for name, levels in sorted(tables.items()):
        path = folder / f"baseline_time_{name}.json"
        write_text(path, json.dumps(levels, indent=4) + "\n")
        written.append(path)
    return written


def _ms(runtime: Runtime) -> float:
    return runtime.median_us / 1e3


def _stats(runtime: Runtime, gpu: str) -> dict[str, Any]:
    """Our statistics are medians and quantiles; the names are the closest that KernelBench has."""
    return {
        "mean": _ms(runtime),
        "std": (runtime.p90_us - runtime.p10_us) / 1e3 / 2.563,
        "min": runtime.p10_us / 1e3,
        "max": runtime.p90_us / 1e3,
        "num_trials": runtime.calls,
        "hardware": gpu,
        "device": "cuda:0",
    }


def _read(path: Path, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_json(path.read_bytes())
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror}") from e
    except ValidationError as e:
        raise DataError(f"{path} is not in KernelBench's format: {e}") from e
