"""A run: completions as the model returns them, verdicts as the judges reach them, both logged at once.

Generation and verification overlap: every completion goes to the pool of judges as soon as it is there. The
log is the only state, so a run that was interrupted anywhere goes on where it was: what has a completion is
not generated again, what has a verdict is not judged again, and what the machine failed on is tried again.
"""

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from dice.engine import SamplingParams
from dice.engine.backends import Answer, Backend, Request
from dice.errors import DiceError, UserError
from dice.eval.records import Chosen, Generation, Judged, Key, Sampling, clean, plain_verdict
from dice.eval.store import Store, write_text
from dice.models.generation import GenerationDefaults
from dice.problems import Benchmark, BenchmarkProblem
from dice.prompts import extract, render
from dice.types import Candidate, Completion, Evidence, Verdict, VerdictKind
from dice.verify import Job

_REASONS = {
    "weights_missing": re.compile(
        r"raised \w*(OSError|Hub\w*Error|EntryNotFoundError|Offline\w+|ConnectionError)"
    ),
    "module_missing": re.compile(r"raised (ModuleNotFoundError|ImportError)"),
    "too_large": re.compile("too large for this machine"),
}
"""Kinds of evidence, by what the judge says about the problem's file."""


class Judges(Protocol):
    """A pool, on this machine or on several."""

    def submit(self, job: Job) -> "Future[Verdict]":
        """Queue one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Callbacks for whoever watches. `judged` comes from a pool's thread."""

    generated: Callable[[Generation], None] = lambda line: None
    judged: Callable[[Judged], None] = lambda line: None


def evaluate(
    store: Store,
    benchmark: Benchmark,
    judges: Judges,
    backend: Backend | None,
    *,
    watch: Watch | None = None,
) -> None:
    """Do what is left of a run. `store` is open for writing; without a backend nothing is generated.

    Raises UserError where the benchmark is not the run's, and what the backend or a broken pool raises;
    everything logged by then stays.
    """
    watch = watch or Watch()
    problems = {one.key: one for one in selected(benchmark, store.config.problems)}
    verdicts = _Verdicts(store, judges, problems, watch)
    try:
        for line in sorted(store.log.generations.values(), key=lambda line: line.key):
            verdicts.want(line)
        if backend is not None:
            left = _requests(store, problems, backend)
            with closing(backend.answers(left)) as answers:
                for answer, seconds in _timed(answers):
                    line = as_generation(answer, problems, backend, seconds)
                    if line.code:
                        write_text(store.candidate_file(line.key), line.code)
                    store.append(line)
                    watch.generated(line)
                    verdicts.want(line)
        verdicts.wait()
    except BaseException:
        verdicts.abandon()
        raise


def selected(benchmark: Benchmark, problems: Iterable[Chosen]) -> list[BenchmarkProblem]:
    """A run's problems. Raises UserError where the benchmark has another text for one."""
    found = []
    for chosen in problems:
        one = benchmark.find(chosen.level, chosen.problem_id)
        if one is None or one.code_hash != chosen.code_hash:
            what = "is not in" if one is None else "differs in"
            raise UserError(
                f"level {chosen.level}, problem {chosen.problem_id} of this run {what} "
                f"{benchmark.source} ({benchmark.version}): name the dataset the run was made with"
            )
        found.append(one)
    return found


def sampling_params(sampling: Sampling, defaults: GenerationDefaults, key: Key) -> SamplingParams:
    """What one sample is drawn with: the run's settings, then the checkpoint's.

    A single sample is greedy unless a temperature is set; several are all drawn the same way, since pass@k
    assumes that. The seed follows from the run's and the sample's name alone.
    """
    temperature = sampling.temperature
    if temperature is None:
        warm = defaults.temperature or 1.0
        temperature = 0.0 if sampling.samples == 1 else warm
    digest = hashlib.sha256(repr((sampling.seed, *key)).encode()).digest()
    return SamplingParams.requested(
        defaults,
        seed=int.from_bytes(digest[:4], "big") >> 1,
        temperature=temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        threshold=sampling.threshold,
        steps=sampling.steps,
        max_new_tokens=sampling.max_new_tokens,
    )


def _requests(
    store: Store,
    problems: dict[tuple[int, int], BenchmarkProblem],
    backend: Backend,
) -> Iterator[Request]:
    """Of every sample without a completion, problem by problem."""
    sampling, defaults = store.config.sampling, backend.defaults
    for (level, problem_id), one in problems.items():
        prompt = render(one.problem, backend.template, texts=defaults.template_texts)
        for sample in range(sampling.samples):
            key = (level, problem_id, sample)
            if key not in store.log.generations:
                params = sampling_params(sampling, defaults, key)
                yield Request(id=_id(key), prompt=prompt, params=params)


def _id(key: Key) -> str:
    return "/".join(map(str, key))


def as_generation(
    answer: Answer,
    problems: dict[tuple[int, int], BenchmarkProblem],
    backend: Backend,
    seconds: float | None = None,
) -> Generation:
    """The log's line for one answer."""
    level, problem_id, sample = map(int, answer.request.id.split("/"))
    completion, usage = answer.completion, answer.usage
    line = Generation(
        level=level,
        problem_id=problem_id,
        sample=sample,
        code_hash=problems[level, problem_id].code_hash,
        seed=answer.request.params.seed,
        failure=answer.failure,
        message=None if answer.message is None else clean(answer.message),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=usage.cost_usd,
        seconds=seconds,
    )
    if completion is None:
        return line
    candidate = extract(answer.request.prompt, completion)
    return line.model_copy(
        update={
            "text": clean(completion.text),
            "code": clean(candidate.code),
            "finish_reason": completion.finish_reason,
            "forwards": completion.forwards or None,
            "pieces": backend.pieces(completion),
            "steps": written_at(completion, backend.block_size) or None,
        }
    )


def _timed(answers: Iterator[Answer]) -> Iterator[tuple[Answer, float]]:
    """Each answer with the seconds in which the backend was worked on for nothing but it.

    Answers that are written together share their time by chance, so only the mean says what one took.
    """
    while True:
        began = time.monotonic()
        answer = next(answers, None)
        if answer is None:
            return
        yield answer, round(time.monotonic() - began, 4)


def written_at(completion: Completion, block_size: int) -> tuple[int | None, ...]:
    """The forward, counted over the whole completion, at which each position was written.

    `Completion.steps` count within a block; blocks are counted from the start of the prompt.
    """
    offset = len(completion.prompt_ids) % block_size
    found: list[int | None] = []
    block = base = after = 0
    for index, step in enumerate(completion.steps):
        if (offset + index) // block_size != block:
            block, base = (offset + index) // block_size, after
        if step is None:
            found.append(None)
        else:
            found.append(base + step)
            after = max(after, base + step + 1)
    return tuple(found)


@dataclass(slots=True)
class _Group:
    """Samples of one problem with the same code: one job, one verdict."""

    lines: list[Generation] = field(default_factory=list)
    done: Judged | None = None


class _Verdicts:
    """Sends candidates to the judges and logs what comes back, each text of a problem once."""

    def __init__(
        self,
        store: Store,
        judges: Judges,
        problems: dict[tuple[int, int], BenchmarkProblem],
        watch: Watch,
    ) -> None:
        self._store, self._judges, self._problems, self._watch = store, judges, problems, watch
        self._groups: dict[tuple[int, int, str], _Group] = {}
        self._lock = threading.Lock()
        self._waiting = 0
        self._idle = threading.Condition(self._lock)
        self._failure: BaseException | None = None
        self._abandoned = False

    def want(self, line: Generation) -> None:
        """See to it that this sample has a verdict; waits while the judges have enough to do."""
        if line.failure is not None:
            return
        name = (line.level, line.problem_id, line.code)
        logged = self._store.log.verdicts.get(line.key)
        with self._lock:
            group = self._groups.setdefault(name, _Group())
            if logged is not None and logged.verdict is not None:
                group.done = group.done or logged
                return
            if group.done is not None:
                self._log(line, group.done)
                return
            group.lines.append(line)
            if len(group.lines) > 1:
                return
            self._waiting += 1
        one = self._problems[line.level, line.problem_id]
        candidate = Candidate(
            problem=one.problem.name, code=line.code, name=f"sample {line.sample}"
        )
        try:
            future = self._judges.submit(
                Job(problem=one.problem, candidate=candidate, id=_id(line.key))
            )
        except BaseException:
            with self._lock:
                self._waiting -= 1
            raise
        future.add_done_callback(lambda done: self._done(name, one, done))

    def _done(
        self, name: tuple[int, int, str], one: BenchmarkProblem, future: "Future[Verdict]"
    ) -> None:
        with self._lock:
            group = self._groups[name]
            lines, group.lines = group.lines, []
            try:
                first = _judged(lines[0], one, future)
                if not (self._abandoned and first.error is not None):
                    self._write(first)
                    if first.verdict is not None:
                        group.done = first
                    for line in lines[1:]:
                        self._log(line, first)
            except BaseException as error:
                self._failure = self._failure or error
            finally:
                self._waiting -= 1
                self._idle.notify_all()

    def _log(self, line: Generation, first: Judged) -> None:
        """The verdict of an earlier sample with the same code."""
        same_as = first.sample if first.same_as is None else first.same_as
        self._write(first.model_copy(update={"sample": line.sample, "same_as": same_as}))

    def _write(self, line: Judged) -> None:
        self._store.append(line)
        self._watch.judged(line)

    def abandon(self) -> None:
        """From now on errors come from ending the pool, and are not logged."""
        with self._lock:
            self._abandoned = True

    def wait(self) -> None:
        """Until every verdict is logged. Raises what writing them raised."""
        with self._lock:
            while self._waiting and self._failure is None:
                self._idle.wait()
            if self._failure is not None:
                raise self._failure


def _judged(line: Generation, one: BenchmarkProblem, future: "Future[Verdict]") -> Judged:
    level, problem_id, sample = line.key
    try:
        verdict = future.result()
    except UserError as error:
        verdict = untestable(one, str(error))
    except DiceError as error:
        return Judged(level=level, problem_id=problem_id, sample=sample, error=str(error))
    seconds = (verdict.build_s or 0.0) + (verdict.run_s or 0.0)
    return Judged(
        level=level,
        problem_id=problem_id,
        sample=sample,
        verdict=plain_verdict(verdict),
        seconds=round(seconds, 3) or None,
    )


def untestable(one: BenchmarkProblem, message: str) -> Verdict:
    """The verdict on any candidate for a problem whose own code does not run here; its kind says why."""
    kind = next((kind for kind, pattern in _REASONS.items() if pattern.search(message)), "")
    if kind == "weights_missing" and "from_pretrained" not in one.problem.code:
        kind = ""
    if kind:
        message = f"{kind.replace('_', ' ')}: {message}"
    evidence = (Evidence(kind=kind or "problem_error", message=message),)
    return Verdict(kind=VerdictKind.UNTESTABLE, evidence=evidence)
