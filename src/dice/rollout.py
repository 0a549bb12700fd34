"""The flow on one page: problem -> prompt -> completions -> candidates -> verdicts -> rewards.

`dice generate`, evaluation and reinforcement learning all call `rollout`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dice.engine import LLM, SamplingParams, StepEvent
from dice.prompts import extract, render
from dice.rewards import reward
from dice.types import Candidate, Completion, Problem, Prompt, Reward, Verdict
from dice.verify import Judge, Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One candidate and everything that became of it."""

    candidate: Candidate
    completion: Completion
    verdict: Verdict
    reward: Reward
    same_as: int | None = None
    """Index of an earlier attempt with the same text, whose verdict this one shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """All attempts at one problem, in the order they were sampled."""

    problem: Problem
    prompt: Prompt
    attempts: tuple[Attempt, ...]

    @property
    def best(self) -> Attempt | None:
        """Of the attempts that were verified correct the fastest, where they were timed, else the first."""
        correct = [attempt for attempt in self.attempts if attempt.verdict.correct]
        return min(correct, key=_runtime_us, default=None)


def _runtime_us(attempt: Attempt) -> float:
    """Of a time that counts; infinite without one."""
    timing = attempt.verdict.timing
    return math.inf if timing is None or timing.refused is not None else timing.runtime.median_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Callbacks for whoever watches."""

    on_prompt: Callable[[Prompt], None] = lambda prompt: None
    on_step: Callable[[StepEvent], None] = lambda event: None
    on_completions: Callable[[list[Completion]], None] = lambda completions: None
    on_judging: Callable[[int], None] = lambda index: None
    on_attempt: Callable[[int, Attempt], None] = lambda index, attempt: None


def rollout(
    prepared: Prepared,
    params: list[SamplingParams],
    *,
    llm: LLM,
    judge: Judge,
    prompt: Prompt | None = None,
    observer: Observer | None = None,
) -> Rollout:
    """Sample one candidate for each of `params`, judge every one, and reward it.

    `prompt` is by default the problem in the template that the model was trained on. Completions with the same text are judged once. Bad candidates are verdicts, never exceptions.
    """
    observer = observer or Observer()
    problem = prepared.problem

    if prompt is None:
        loaded = llm.loaded
        prompt = render(problem, loaded.template, texts=loaded.generation.template_texts)
    observer.on_prompt(prompt)
    completions = llm.generate([prompt] * len(params), params, on_step=observer.on_step)
    observer.on_completions(completions)

    attempts: list[Attempt] = []
    for index, completion in enumerate(completions):
        candidate = extract(prompt, completion, name=f"candidate {index + 1}")
        twin = next((i for i, a in enumerate(attempts) if a.candidate.code == candidate.code), None)
        if twin is None:
            observer.on_judging(index)
            verdict = judge.judge(prepared, candidate)
        else:
            verdict = attempts[twin].verdict
        attempt = Attempt(
            candidate=candidate,
            completion=completion,
            verdict=verdict,
            reward=reward(verdict),
            same_as=twin,
        )
        attempts.append(attempt)
        observer.on_attempt(index, attempt)
    return Rollout(problem=problem, prompt=prompt, attempts=tuple(attempts))
