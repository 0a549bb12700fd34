"""What the HTML report embeds of every sample: code, verdict, evidence, timing, and the replay of some.

Equal texts are stored once. What makes the file too large is left out step by step, and said to be.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dice.eval.outcomes import Outcome
from dice.eval.records import Generation, clean, plain_verdict
from dice.eval.report.charts import KINDS
from dice.eval.store import Store
from dice.eval.summary import by_problem

MAX_TEXT, MAX_MESSAGE = 200_000, 10_000
"""Characters of one candidate or completion, and of one message."""

REPLAYS = 2
"""Samples of each problem whose denoising can be replayed, where nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much goes in."""

    replays: int = REPLAYS
    """Samples of each problem that can be replayed: the best, the first, then the others."""
    codes: int | None = None
    """Samples of each problem whose code is shown, in the same order; None for all."""


def smaller(extent: Extent) -> Iterable[Extent]:
    """What to try, in order, until the file is small enough."""
    for replays in sorted({extent.replays, min(extent.replays, 1), 0}, reverse=True):
        yield Extent(replays=replays, codes=extent.codes)
    for codes in (2, 1, 0):
        if extent.codes is None or codes < extent.codes:
            yield Extent(replays=0, codes=codes)


def best(samples: Sequence[Outcome]) -> Outcome:
    """The fastest correct one, else the first that is correct, else that matches, else the first."""

    def merit(one: Outcome) -> tuple[bool, float, bool]:
        return (
            one.correct,
            max([0.0, *(value for _, value in one.speedups)]),
            one.correct_unfiltered,
        )

    return max(samples, key=merit)


def details(store: Store, outcomes: Sequence[Outcome], extent: Extent) -> dict[str, Any]:
    """Everything that the page's script shows, as plain data without NaN."""
    texts = _Texts()
    problems = []
    cut = {"replays": 0, "codes": 0}
    for ones in by_problem(outcomes).values():
        front = [best(ones), ones[0], *ones]
        order = list(dict.fromkeys(one.sample for one in front))
        replayed, shown = set(order[: extent.replays]), set(order[: extent.codes])
        samples = []
        for one in ones:
            generation = one.generation or store.log.generations.get(one.key)
            entry = _sample(one, texts)
            if generation is not None:
                entry |= _generation(generation, texts, one, shown=shown, replayed=replayed)
                cut["replays"] += bool(generation.steps) and "replay" not in entry
                cut["codes"] += bool(generation.code) and "code" not in entry
            samples.append(entry)
        problems.append(
            {
                "level": ones[0].level,
                "id": ones[0].problem_id,
                "stem": ones[0].stem,
                "best": order[0],
                "samples": samples,
            }
        )
    return {"kinds": KINDS, "problems": problems, "texts": texts.found, "left_out": cut}


class _Texts:
    """Each text once; samples name it by its number."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._numbers: dict[str, int] = {}

    def add(self, text: str, limit: int = MAX_TEXT) -> int:
        if len(text) > limit:
            text = f"{text[:limit]}\n[... {len(text) - limit} more characters are left out]"
        text = clean(text)
        if text not in self._numbers:
            self._numbers[text] = len(self.found)
            self.found.append(text)
        return self._numbers[text]


def _sample(one: Outcome, texts: _Texts) -> dict[str, Any]:
    found: dict[str, Any] = {"n": one.sample, "status": one.status, "correct": one.correct}
    if one.correct_unfiltered and not one.correct:
        found["matched"] = True
    if one.speedups:
        found["speedups"] = dict(one.speedups)
    if one.verdict is None and one.runtime_us is not None:
        found["runtime_us"] = one.runtime_us
    judged = one.judged
    if judged is not None and judged.error is not None:
        found["error"] = texts.add(judged.error, MAX_MESSAGE)
    if judged is not None and judged.same_as is not None:
        return found | {"same_as": judged.same_as}
    if one.verdict is None:
        return found
    verdict = plain_verdict(one.verdict)
    evidence = [
        {
            "kind": each["kind"],
            "message": texts.add(each["message"], MAX_MESSAGE),
            "details": each["details"] if len(repr(each["details"])) <= MAX_MESSAGE else {},
        }
        for each in verdict["evidence"]
    ]
    kept = ("backend", "nvcc", "build_s", "run_s", "attribution", "timing", "outputs_match")
    return {
        **found,
        "evidence": evidence,
        "notes": [texts.add(note, MAX_MESSAGE) for note in verdict["notes"]],
        **{name: verdict[name] for name in kept if verdict[name] is not None},
    }


_GENERATION = (
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "forwards",
    "seconds",
    "cost_usd",
)


def _generation(
    line: Generation, texts: _Texts, one: Outcome, *, shown: set[int], replayed: set[int]
) -> dict[str, Any]:
    values = {name: getattr(line, name) for name in (*_GENERATION, "seed")}
    found: dict[str, Any] = {
        "generation": {name: value for name, value in values.items() if value is not None}
    }
    if line.message is not None:
        found["message"] = texts.add(line.message, MAX_MESSAGE)
    if one.sample in shown:
        if line.code:
            found["code"] = texts.add(line.code)
        elif line.text:
            found["text"] = texts.add(line.text)
    if one.sample in replayed and line.steps and line.pieces:
        found["replay"] = {"pieces": [clean(p) for p in line.pieces], "steps": line.steps}
    elif line.steps and line.pieces:
        found["replay_left_out"] = True
    return found
