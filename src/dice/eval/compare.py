"""Two runs on the same problems, paired problem by problem.

A problem counts where both runs have it with the same code and have finished it; every other one is left out
and named. Correctness is compared on one kind of device only, speed on one GPU only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dice.errors import UserError
from dice.eval.metrics import Paired, paired
from dice.eval.outcomes import UNFINISHED, Outcome, outcomes
from dice.eval.plan import describe
from dice.eval.records import RunConfig
from dice.eval.store import Store
from dice.eval.summary import is_correct, is_fast

Score: TypeAlias = Callable[[Sequence[Outcome]], float]
"""Of one problem's samples."""
Place: TypeAlias = tuple[int, int]
"""Level and problem number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One side of a comparison."""

    config: RunConfig
    outcomes: tuple[Outcome, ...]
    name: str

    @classmethod
    def of(cls, store: Store, *, earns: dict[str, str] | None = None) -> "Run":
        """What a run's judges said; `earns` as in `outcomes`."""
        config = store.config
        found = outcomes(store.log, config.problems, config.sampling.samples, earns=earns)
        return cls(config=config, outcomes=tuple(found), name=config.name)

    @property
    def samples(self) -> int:
        return self.config.sampling.samples

    @property
    def baselines(self) -> set[str]:
        return {over for one in self.outcomes for over, _ in one.speedups}

    def problems(self) -> dict[Place, list[Outcome]]:
        found: dict[Place, list[Outcome]] = {}
        for one in self.outcomes:
            found.setdefault((one.level, one.problem_id), []).append(one)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A problem that is not compared."""

    level: int
    problem_id: int
    stem: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measure on one level; `level` None is all of them, every problem weighing the same."""

    measure: str
    level: int | None
    paired: Paired


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A problem on which the runs differ."""

    level: int
    problem_id: int
    stem: str
    measure: str
    a: float
    b: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that can be said about b beside a."""

    a: str
    b: str
    samples: tuple[int, int]
    problems: int
    warnings: tuple[str, ...]
    not_compared: dict[str, str]
    """Measures that are missing, and why."""
    left_out: tuple[LeftOut, ...]
    results: tuple[Result, ...]
    changed: tuple[Change, ...]
    """In Exec with the hack filter, and in fast_1."""


def compare(a: Run, b: Run, *, speed: bool = True, seed: int = 0) -> Comparison:
    """Compare two runs.

    Args:
        speed: also compare times; False compares correctness alone.

    Raises UserError where the comparison would mean nothing: a CPU's results beside a GPU's, times of
    different GPUs, no problem in common.
    """
    if a.config.place.backend != b.config.place.backend:
        raise UserError(
            f"{a.name} was judged on {describe(a.config.place)}, {b.name} on {describe(b.config.place)}: "
            "these results are never compared; judge both in one place"
        )
    timed = a.config.place.timing and b.config.place.timing
    if speed and timed and a.config.place.gpu != b.config.place.gpu:
        raise UserError(
            f"{a.name} was timed on {a.config.place.gpu}, {b.name} on {b.config.place.gpu}: speeds of "
            "different GPUs are not compared; compare correctness alone"
        )
    names, left_out = _common(a, b)
    if not names:
        raise UserError(f"{a.name} and {b.name} have no problem in common that both have finished")
    scores, missing = _scores(a, b, speed=speed)
    of_a, of_b = a.problems(), b.problems()
    levels = sorted({level for level, _ in names})
    results, changed = [], []
    for measure, score in scores.items():
        values = {place: (score(of_a[place]), score(of_b[place])) for place in names}
        for level in (*levels, *([None] if len(levels) > 1 else [])):
            ones = [pair for place, pair in values.items() if level in (None, place[0])]
            found = paired([one for one, _ in ones], [one for _, one in ones], seed=seed)
            assert found is not None
            results.append(Result(measure=measure, level=level, paired=found))
        if measure == EXEC or measure.startswith("fast_"):
            changed += [
                Change(
                    level=place[0],
                    problem_id=place[1],
                    stem=names[place],
                    measure=measure,
                    a=one,
                    b=other,
                )
                for place, (one, other) in values.items()
                if one != other
            ]
    return Comparison(
        a=a.name,
        b=b.name,
        samples=(a.samples, b.samples),
        problems=len(names),
        warnings=tuple(_warnings(a.config, b.config)),
        not_compared=missing,
        left_out=tuple(left_out),
        results=tuple(results),
        changed=tuple(changed),
    )


EXEC, UNFILTERED, BEST = "Exec", "Exec, no filter", "best of n"


def _scores(a: Run, b: Run, *, speed: bool) -> tuple[dict[str, Score], dict[str, str]]:
    """What can be compared, and why not the rest."""

    def share(test: Callable[[Outcome], bool]) -> Score:
        return lambda ones: sum(map(test, ones)) / len(ones)

    scores: dict[str, Score] = {
        EXEC: share(lambda o: is_correct(o, unfiltered=False)),
        UNFILTERED: share(lambda o: is_correct(o, unfiltered=True)),
    }
    missing: dict[str, str] = {}
    if a.samples != b.samples:
        missing[BEST] = (
            f"{a.name} has {a.samples} samples of each problem and {b.name} {b.samples}: the better of "
            "more is better by itself"
        )
    elif a.samples > 1:
        scores[BEST.replace("n", str(a.samples))] = lambda ones: float(any(o.correct for o in ones))
    untimed = [run.name for run in (a, b) if not run.config.place.timing]
    if not speed:
        missing["fast_1"] = "correctness alone was asked for"
    elif untimed:
        missing["fast_1"] = f"no speed was measured for {' and '.join(untimed)}"
    elif not a.baselines | b.baselines:
        missing["fast_1"] = "neither run has a time that is believed"
    else:
        for over in sorted(a.baselines | b.baselines, key=lambda over: (over != "eager", over)):
            scores[f"fast_1 {over}"] = share(
                lambda o, over=over: is_fast(o, over, 1.0, unfiltered=False)  # type: ignore[misc]
            )
    return scores, missing


def _common(a: Run, b: Run) -> tuple[dict[Place, str], list[LeftOut]]:
    """File names of the problems that are compared, and the others."""
    of_a = {(one.level, one.problem_id): one for one in a.config.problems}
    of_b = {(one.level, one.problem_id): one for one in b.config.problems}
    done_a, done_b = a.problems(), b.problems()
    names, left_out = {}, []
    for place in sorted({*of_a, *of_b}):
        one, other = of_a.get(place), of_b.get(place)
        if one is None or other is None:
            why = f"only in {b.name if one is None else a.name}"
        elif one.code_hash != other.code_hash:
            why = "its code differs"
        else:
            why = _not_comparable(done_a.get(place, []), done_b.get(place, []), a.name, b.name)
        stem = (one or of_b[place]).stem
        if why:
            left_out.append(LeftOut(level=place[0], problem_id=place[1], stem=stem, why=why))
        else:
            names[place] = stem
    return names, left_out


def _not_comparable(a: Sequence[Outcome], b: Sequence[Outcome], name_a: str, name_b: str) -> str:
    for ones, name in ((a, name_a), (b, name_b)):
        if not ones or any(one.status in UNFINISHED for one in ones):
            return f"not finished in {name}"
    untestable = [any(one.untestable for one in ones) for ones in (a, b)]
    if untestable[0] != untestable[1]:
        return f"untestable in {name_a if untestable[0] else name_b} alone"
    return ""


def _warnings(a: RunConfig, b: RunConfig) -> list[str]:
    found = []
    if a.dataset_version != b.dataset_version:
        found.append(
            f"the dataset's versions differ ({a.dataset_version}, {b.dataset_version}); only problems with "
            "the same code are compared"
        )
    names = sorted(
        name for name in {*a.policy, *b.policy} if a.policy.get(name) != b.policy.get(name)
    )
    if names:
        found.append(
            f"the policies differ in {', '.join(names)}: what counts as correct may differ"
        )
    if a.place.gpu != b.place.gpu:
        found.append(f"judged on different GPUs: {a.place.gpu}, {b.place.gpu}")
    versions = [run.provenance[-1].get("dice") if run.provenance else None for run in (a, b)]
    if versions[0] != versions[1]:
        found.append(f"judged by different versions of dice: {versions[0]}, {versions[1]}")
    return found
