"""What a report says about a run besides its measures: how it was made, where judged, how far it is."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dice.eval import plan
from dice.eval.outcomes import MACHINE_ERROR, NOT_GENERATED, NOT_JUDGED, Outcome
from dice.eval.records import Place
from dice.eval.store import Store
from dice.eval.summary import LevelSummary, as_json
from dice.verify import Policy

FORMAT = 1
"""Of `summary.json`."""
_VERSIONS = ("dice", "git_revision", "python", "torch", "transformers", "cuda", "device", "machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A constant of the policy that is not the default."""

    name: str
    default: Any
    run: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run, described."""

    name: str
    model: dict[str, Any]
    dataset: str
    """Of a file its name alone: a report is shown to others, and its version says which text it is."""
    dataset_version: str
    problems: int
    samples: int
    """Of each problem."""
    sampling: dict[str, Any]
    """None leaves a value to the model."""
    place: Place
    judged_by: str
    """"dice", or "kernelbench" for what its own scripts said about an imported run."""
    limits: tuple[str, ...]
    """What the numbers do not say, for people: the first thing a report shows."""
    policy_changes: tuple[Changed, ...]
    rescored: int
    """Samples whose verdict another policy on attributions changed after the run."""
    finished: bool
    unfinished: dict[str, int]
    """Samples without a result, by what is missing."""
    refused_times: dict[int, int]
    """By level: correct samples whose measured time is not believed."""
    provenance: tuple[dict[str, Any], ...]
    """One entry per start: when, and with which versions."""


def facts(store: Store, outcomes: Sequence[Outcome]) -> RunFacts:
    """Describe a run. Outcomes that `upstream_outcomes` made are recognised: no judge stands behind them."""
    config = store.config
    claims = any(one.generation is None and one.status != NOT_GENERATED for one in outcomes)
    imported = config.model.get("kind") == "imported"
    waiting = (
        {NOT_JUDGED, MACHINE_ERROR} if imported else {NOT_GENERATED, NOT_JUDGED, MACHINE_ERROR}
    )
    unfinished: dict[str, int] = {}
    for one in outcomes:
        if one.status in waiting and not claims:
            unfinished[one.status] = unfinished.get(one.status, 0) + 1
    refused: dict[int, int] = {}
    for one in outcomes:
        refused[one.level] = refused.get(one.level, 0) + (one.correct and one.refused)
    return RunFacts(
        name=config.name,
        model=config.model,
        dataset=_file_name(config.dataset),
        dataset_version=config.dataset_version,
        problems=len(config.problems),
        samples=config.sampling.samples,
        sampling=config.sampling.model_dump(),
        place=config.place,
        judged_by="kernelbench" if claims else "dice",
        limits=tuple(_limits(config.place, outcomes, claims=claims, imported=imported)),
        policy_changes=policy_changes(config.policy),
        rescored=sum(_rescored(one) for one in outcomes),
        finished=not unfinished,
        unfinished=unfinished,
        refused_times=refused,
        provenance=tuple(_entry(one) for one in config.provenance),
    )


def _limits(
    place: Place, outcomes: Sequence[Outcome], *, claims: bool, imported: bool
) -> Iterable[str]:
    if claims:
        yield (
            "These are the numbers of KernelBench's own scripts. Nothing was judged here, and they have "
            "no hack filter."
        )
        missing = sum(one.status == NOT_JUDGED for one in outcomes)
        if missing:
            yield f"They say nothing about {missing} samples, which count as failures."
        return
    if place.backend == "simt":
        yield (
            "Judged by emulation on a CPU: correctness only, at reduced problem sizes. No speed was "
            "measured, and nothing here ran on a GPU."
        )
    elif not place.timing:
        yield f"Judged on {place.gpu} for correctness only: no speed was measured."
    absent = sum(one.status == NOT_GENERATED for one in outcomes)
    if imported and absent:
        yield f"{absent} samples have no candidate in the imported folder; they count as failures."


def _file_name(dataset: str) -> str:
    path = Path(dataset)
    return path.name if path.is_absolute() or path.suffix == ".jsonl" else dataset


def _rescored(one: Outcome) -> bool:
    if one.verdict is None or one.judged is None or one.judged.verdict is None:
        return False
    return str(one.judged.verdict.get("kind")) != str(one.verdict.kind)


def _entry(one: dict[str, Any]) -> dict[str, Any]:
    """Without the command line, which names folders of the machine."""
    return {"time": one.get("time"), **{name: one.get(name) for name in _VERSIONS}}


def policy_changes(policy: dict[str, Any]) -> tuple[Changed, ...]:
    """Where a run's policy is not the default of this version; () for a run that recorded none."""
    if not policy:
        return ()
    default, own = _flat(plan.policy_record(Policy())), _flat(policy)
    names = [*default, *(name for name in own if name not in default)]
    return tuple(
        Changed(name=name, default=default.get(name), run=own.get(name))
        for name in names
        if default.get(name) != own.get(name)
    )


def _flat(values: dict[str, Any], lead: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{lead}{name}.")
        else:
            found[lead + name] = list(value) if isinstance(value, tuple) else value
    return found


def run_json(
    store: Store, outcomes: Sequence[Outcome], levels: Sequence[LevelSummary]
) -> dict[str, Any]:
    """The run's description and numbers as plain data, for `summary.json`."""
    found = facts(store, outcomes)
    run = {**asdict(found), "place": found.place.model_dump()}
    run["refused_times"] = {str(level): count for level, count in found.refused_times.items()}
    return {"format": FORMAT, "run": run, "levels": as_json(levels)}
