"""Build a supervised dataset: draw, sort out, verify by running, split, write.

Draw i is a function of (seed, i) alone. Duplicates of an earlier problem and evaluation problems go before
anything is compiled; what is left is verified in groups by a pool of processes and lands in shard files
that are written by rename, so a killed build continues where it was. The result does not depend on the
number of workers.

    plan.json            the settings; a folder built with others is refused
    shards/00000.jsonl   outcomes of consecutive draws
    train.jsonl          verified pairs (`dice.data.records`)
    held_out.jsonl       verified pairs whose composition of operations is in no training pair
    stats.json           counts by family and schedule, and why draws were rejected
"""

import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from dice.config.schema import BuildSection
from dice.data.decontaminate import is_evaluation_problem, is_held_out
from dice.data.records import PairRecord, write_records
from dice.data.synth import Pair, sample_pair
from dice.errors import DataError
from dice.prompts.render import canonical_code

_PLAN_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProgress:
    """What a progress callback gets."""

    stage: str
    """"sorting out", "compiling headers" or "verifying"."""
    done: int
    total: int
    """Draws; after sorting out, those that are left."""
    rejected: dict[str, int]
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What was written."""

    train: Path
    held_out: Path
    stats: dict[str, Any]


def build_dataset(
    config: BuildSection,
    folder: Path,
    *,
    on_progress: Callable[[BuildProgress], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> BuildResult:
    """Build, or finish building, the dataset of `config` in `folder`.

    Args:
        should_stop: asked after every shard; when true, the dataset is made of the shards so far and
            its stats say `complete: false`. A later call goes on from there.

    Raises:
        DataError: the folder holds a dataset of other settings.
        ToolchainError: no usable compiler.
    """
    started = time.monotonic()
    _claim(config, folder)
    rejected: Counter[str] = Counter()

    def report(stage: str, done: int, total: int) -> None:
        if on_progress is not None:
            elapsed_s = time.monotonic() - started
            on_progress(
                BuildProgress(
                    stage=stage,
                    done=done,
                    total=total,
                    rejected=dict(rejected),
                    elapsed_s=elapsed_s,
                )
            )

    workers = config.workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
        report("sorting out", 0, config.pairs)
        chosen = _sort_out(pool, config, rejected)
        report("compiling headers", 0, len(chosen))
        pool.submit(_prepare_toolchain).result()
        shards = [
            chosen[i : i + config.shard_size] for i in range(0, len(chosen), config.shard_size)
        ]
        done = shards_done = 0
        for number, outcomes in _verified(pool, config, folder, shards):
            done, shards_done = done + len(shards[number]), number + 1
            rejected.update(o["rejected"].split(":")[0] for o in outcomes if o["rejected"])
            report("verifying", done, len(chosen))
            if should_stop():
                pool.shutdown(cancel_futures=True)
                break
    state = {
        "complete": shards_done == len(shards),
        "draws_verified": done,
        "rejected": dict(rejected.most_common()),
        "elapsed_s": time.monotonic() - started,
    }
    return _finish(config, folder, shards_done, state)


def draw(seed: int, index: int) -> Pair:
    """Draw `index` of a dataset's seed."""
    return sample_pair(Random(f"{seed}:{index}"))


def _claim(config: BuildSection, folder: Path) -> None:
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    settings = config.model_dump(mode="json", exclude={"workers"})
    plan = folder / "plan.json"
    if not plan.exists():
        plan.write_text(json.dumps(settings, indent=2) + "\n")
    elif json.loads(plan.read_text()) != settings:
        raise DataError(f"{folder} holds a dataset of other settings (see {plan})")


def _sort_out(pool: ProcessPoolExecutor, config: BuildSection, rejected: Counter[str]) -> list[int]:
    """Draws worth verifying: no evaluation problem, and the first of its canonical text."""
    starts = range(0, config.pairs, _PLAN_CHUNK)
    ends = [min(start + _PLAN_CHUNK, config.pairs) for start in starts]
    digests = pool.map(_problem_digests, [config.seed] * len(ends), starts, ends)
    seen: set[str] = set()
    chosen = []
    for index, digest in enumerate(d for chunk in digests for d in chunk):
        if digest is None:
            rejected["evaluation problem"] += 1
        elif digest in seen:
            rejected["duplicate"] += 1
        else:
            seen.add(digest)
            chosen.append(index)
    return chosen


def _problem_digests(seed: int, start: int, end: int) -> list[str | None]:
    """Digest of each draw's canonical problem; None for an evaluation problem."""
    answers: list[str | None] = []
    for index in range(start, end):
        code = draw(seed, index).problem_code
        known = is_evaluation_problem(code)
        answers.append(None if known else sha256(canonical_code(code).encode()).hexdigest()[:24])
    return answers


def _verified(
    pool: ProcessPoolExecutor, config: BuildSection, folder: Path, shards: Sequence[Sequence[int]]
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Every shard's outcomes, verifying those that are not on disk yet."""
    waiting = {}
    for number, indices in enumerate(shards):
        if not _shard_path(folder, number).exists():
            groups = [
                indices[i : i + config.group_size]
                for i in range(0, len(indices), config.group_size)
            ]
            waiting[number] = [pool.submit(_verify_indices, config, group) for group in groups]
    for number in range(len(shards)):
        path = _shard_path(folder, number)
        if number in waiting:
            outcomes = [o for future in waiting.pop(number) for o in future.result()]
            temporary = path.with_suffix(".tmp")
            temporary.write_text("".join(json.dumps(o) + "\n" for o in outcomes))
            temporary.replace(path)
        yield number, [json.loads(line) for line in path.read_text().splitlines()]


def _verify_indices(config: BuildSection, indices: Sequence[int]) -> list[dict[str, Any]]:
    """Outcomes of one group: the record's fields and `rejected` (None, or why). In a worker."""
    from dice.data.verify_pairs import CheckOptions, verify_group

    pairs = [draw(config.seed, index) for index in indices]
    options = CheckOptions(
        inputs=config.inputs_per_pair, pair_timeout_s=config.pair_timeout_s, build=_build_options()
    )
    outcomes = []
    for index, pair, verdict in zip(indices, pairs, verify_group(pairs, options), strict=True):
        record = PairRecord(
            index=index,
            family=pair.family,
            schedule=pair.schedule,
            ops=pair.ops,
            problem_code=canonical_code(pair.problem_code),
            kernel_code=pair.kernel_code,
        )
        outcomes.append({**asdict(record), "rejected": verdict})
    return outcomes


def _build_options() -> Any:
    from dice.toolchain.source import BuildOptions

    return BuildOptions(check=True, optimisation="-O0", use_cache=False)


def _start_worker() -> None:
    """One thread per process: the pool is the parallelism."""
    import torch

    torch.set_num_threads(1)


def _prepare_toolchain() -> None:
    from dice.toolchain.prelude import ensure_prelude

    ensure_prelude(_build_options())


def _shard_path(folder: Path, number: int) -> Path:
    return folder / "shards" / f"{number:05d}.jsonl"


def _finish(config: BuildSection, folder: Path, shards: int, state: dict[str, Any]) -> BuildResult:
    """Merge the shards, split and count."""
    train: list[PairRecord] = []
    held_out: list[PairRecord] = []
    failures: dict[str, Counter[str]] = {}
    examples: dict[str, str] = {}
    for number in range(shards):
        for line in _shard_path(folder, number).read_text().splitlines():
            fields = json.loads(line)
            reason = fields.pop("rejected")
            record = PairRecord(**{**fields, "ops": tuple(fields["ops"])})
            if reason is not None:
                kind = reason.split(":")[0]
                failures.setdefault(f"{record.family}/{record.schedule}", Counter())[kind] += 1
                examples.setdefault(f"{record.family}/{kind}", f"draw {record.index}: {reason}")
            elif is_held_out(
                record.ops, fraction=config.held_out_fraction, min_ops=config.held_out_min_ops
            ):
                held_out.append(record)
            else:
                train.append(record)
    paths = [folder / "train.jsonl", folder / "held_out.jsonl"]
    write_records(paths[0], train)
    write_records(paths[1], held_out)
    stats = {
        "draws": config.pairs,
        "seed": config.seed,
        "train": len(train),
        "held_out": len(held_out),
        **state,
        "families": dict(Counter(r.family for r in train).most_common()),
        "schedules": dict(Counter(f"{r.family}/{r.schedule}" for r in train).most_common()),
        "failures": {k: dict(v) for k, v in sorted(failures.items())},
        "failure_examples": examples,
    }
    (folder / "stats.json").write_text(json.dumps(stats, indent=2) + "\n")
    return BuildResult(train=paths[0], held_out=paths[1], stats=stats)
