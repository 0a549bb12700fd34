"""The same decoding by LMDeploy's PyTorch engine, from a checkout, in a process of its own.

`benchmarks/decode.py --peer PATH` calls `run`, which starts this file as a program with PATH first in its
search path; the program imports `lmdeploy` from there, decodes every case of a job and writes what came out.
Same weights (a checkpoint written for both), prompts, lengths and schedule: as many positions unmasked at
each step, by confidence, stop tokens ignored. Each side stores finished blocks in its own way, LMDeploy by
one more forward a block. Rounds are timed from the first request to the last token, prefill included.
Written against LMDeploy 0.16.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to decode. `prompts` has one list of requests, as token ids, for each case."""

    checkpoint: str
    block_size: int
    denoising_steps: int
    new_tokens: int
    prompts: list[list[list[int]]]
    rounds: int = 2
    """The last counts; the first captures graphs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case as the peer decoded it."""

    version: str
    seconds: float
    tokens: list[list[int]]


class PeerError(Exception):
    """The peer cannot do what was asked, or did something else."""


def check_schedule(block_size: int, denoising_steps: int) -> None:
    """Raise PeerError unless both unmask equally many positions at each step.

    LMDeploy unmasks floor(block size / steps) a step; ours spreads the remainder over the first steps.
    """
    if block_size % denoising_steps:
        raise PeerError(
            f"{denoising_steps} denoising steps do not divide the block size {block_size}: the peer would "
            "follow another schedule; choose a divisor"
        )


def run(
    peer: Path, job: Job, *, python: str = sys.executable, timeout_s: float = 1800
) -> list[Result]:
    """One result a case.

    Raises:
        PeerError: no checkout there, it failed, or its answers do not fit the job.
    """
    check_schedule(job.block_size, job.denoising_steps)
    if not (peer / "lmdeploy").is_dir():
        raise PeerError(f"{peer} is no checkout of LMDeploy: it has no folder lmdeploy")
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "job.json", Path(folder) / "results.json"
        asked.write_text(json.dumps(asdict(job)))
        path = os.pathsep.join([str(peer.resolve()), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [python, __file__, str(asked), str(told)],
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if done.returncode or not told.exists():
            raise PeerError(f"the peer failed ({done.returncode}):\n{done.stderr[-3000:]}")
        return parse(told.read_text(), job)


def parse(text: str, job: Job) -> list[Result]:
    """Results, checked against the job."""
    try:
        results = [Result(**one) for one in json.loads(text)]
    except (TypeError, ValueError) as error:
        raise PeerError(f"the peer's results cannot be read: {error}") from error
    if len(results) != len(job.prompts):
        raise PeerError(f"the peer answered {len(results)} of {len(job.prompts)} cases")
    for result, requests in zip(results, job.prompts, strict=True):
        lengths = sorted({len(one) for one in result.tokens})
        if len(result.tokens) != len(requests) or lengths != [job.new_tokens]:
            raise PeerError(
                f"the peer wrote {len(result.tokens)} responses of {lengths} tokens; "
                f"{len(requests)} of {job.new_tokens} were asked for"
            )
        if not result.seconds > 0:
            raise PeerError(f"the peer took {result.seconds} s")
    return results


def equal_share(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """Of all positions. Half precision parts ways at near ties, so 1 is not to be expected."""
    pairs = [pair for a, b in zip(ours, theirs, strict=True) for pair in zip(a, b, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


# -- in the peer's process ---------------------------------------------------------------------------


def serve(job: Job) -> list[Result]:
    """Decode every case of a job with LMDeploy."""
    import lmdeploy
    from lmdeploy import GenerationConfig, PytorchEngineConfig
    from lmdeploy.pytorch.engine import Engine

    _register_config()
    largest = max(len(requests) for requests in job.prompts)
    longest = max(len(prompt) for requests in job.prompts for prompt in requests)
    engine = Engine.from_pretrained(
        job.checkpoint,
        engine_config=PytorchEngineConfig(
            dtype="auto",
            max_batch_size=largest,
            session_len=longest + job.new_tokens + job.block_size,
            dllm_block_length=job.block_size,
            dllm_denoising_steps=job.denoising_steps,
            dllm_unmasking_strategy="low_confidence_static",
        ),
    )
    greedy = GenerationConfig(max_new_tokens=job.new_tokens, do_sample=False, ignore_eos=True)

    async def one(session: int, prompt: list[int]) -> list[int]:
        tokens: list[int] = []
        answers = engine.create_instance().async_stream_infer(
            session, input_ids=prompt, gen_config=greedy
        )
        async for output in answers:
            tokens += output.token_ids
        return tokens

    async def everything() -> list[Result]:
        results, session = [], 0
        for requests in job.prompts:
            for _ in range(job.rounds):
                started = time.perf_counter()
                work = [one(session + at, prompt) for at, prompt in enumerate(requests)]
                tokens = await asyncio.gather(*work)
                seconds = time.perf_counter() - started
                session += len(requests)
            results.append(
                Result(version=lmdeploy.__version__, seconds=seconds, tokens=list(tokens))
            )
        return results

    return asyncio.run(everything())


def _register_config() -> None:
    """Checkpoints come without code; their config is Qwen3's with a block size."""
    from transformers import AutoConfig, Qwen3Config

    class SdarConfig(Qwen3Config):
        model_type = "sdar"

    AutoConfig.register("sdar", SdarConfig, exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", type=Path)
    parser.add_argument("results", type=Path)
    args = parser.parse_args()
    results = serve(Job(**json.loads(args.job.read_text())))
    args.results.write_text(json.dumps([asdict(one) for one in results]))
    os._exit(0)  # its engine's threads would hold the process


if __name__ == "__main__":
    main()
