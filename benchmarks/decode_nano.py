"""Decoding speed on a CPU: the compiled forward against the plain model, in pairs.

Two workloads. `schedule`: a prompt of random words and a fixed number of tokens per forward (`--per-step`),
for one candidate alone and for `--candidates` together; a model with random weights unless `--model` names
one. `examples` (`--examples N`, with a checkpoint that writes kernels): the problems of `examples/`, decoded as
`dice generate` does with the checkpoint's own settings, the first candidate greedy; counts the candidates whose
tokens and steps are the same on both paths.

Every measurement is a pair, plain then compiled and the next time the other way round; printed are medians of
seconds, of CPU seconds and of the pairs' ratios. Where CPU seconds and seconds differ by more than the threads'
share, the machine was busy with something else: look at the ratio of CPU seconds then.

    python benchmarks/decode_nano.py --model nano --examples 4
"""

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dice.engine.llm import LLM
from dice.engine.sampling import SamplingParams
from dice.models.generation import GenerationDefaults
from dice.models.load import LoadedModel, load_model
from dice.models.sdar import SdarConfig, SdarForCausalLM
from dice.types import Completion, Prompt
from machine import write_results

ROOT = Path(__file__).resolve().parent.parent


def random_nano(kv_heads: int) -> LoadedModel:
    words = ["<|pad|>", "<|mask|>", "<|endoftext|>", *(f"w{index}" for index in range(4093))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(0)
    config = SdarConfig(
        vocab_size=4096,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=kv_heads,
        head_dim=64,
        tie_word_embeddings=True,
        mask_token_id=1,
        eos_token_id=2,
    )
    return LoadedModel(
        name="random",
        config=config,
        model=SdarForCausalLM(config).eval(),
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<|mask|>"),
        mask_token_id=1,
        stop_token_ids=frozenset({2}),
        template="nano",
        generation=GenerationDefaults(eos_token_id=(2,)),
    )


class Pairs:
    """Runs requests on both paths and keeps what it took."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.paths = {"plain": LLM(loaded, native=False), "compiled": LLM(loaded, native=True)}
        self.records: list[dict[str, Any]] = []

    def run(self, label: str, prompt: Prompt, params: list[SamplingParams]) -> None:
        record: dict[str, Any] = {"workload": label, "candidates": len(params)}
        completions: dict[str, list[Completion]] = {}
        for path in sorted(self.paths, reverse=len(self.records) % 2 == 0):
            start, cpu_start = time.perf_counter(), time.process_time()
            completions[path] = self.paths[path].generate([prompt] * len(params), params)
            seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
            forwards = max(c.forwards for c in completions[path])
            tokens = sum(len(c.token_ids) for c in completions[path])
            record[path] = {
                "seconds_per_candidate": round(seconds / len(params), 3),
                "cpu_s_per_candidate": round(cpu_s / len(params), 3),
                "forwards_per_s": round(forwards / seconds, 1),
                "forwards_per_cpu_s": round(forwards / cpu_s, 1),
                "forwards": forwards,
                "tokens": tokens,
            }
        plain, fast = record["plain"], record["compiled"]
        for key in ("forwards_per_s", "forwards_per_cpu_s"):
            record[f"{key}_ratio"] = round(fast[key] / plain[key], 2)
        record["same"] = sum(
            (a.token_ids, a.steps) == (b.token_ids, b.steps)
            for a, b in zip(completions["plain"], completions["compiled"], strict=True)
        )
        record["same_greedy"] = sum(
            (a.token_ids, a.steps) == (b.token_ids, b.steps)
            for a, b, p in zip(completions["plain"], completions["compiled"], params, strict=True)
            if p.temperature == 0
        )
        record["greedy"] = sum(p.temperature == 0 for p in params)
        self.records.append(record)
        print(
            f"{label}: {plain['seconds_per_candidate']:.2f} -> {fast['seconds_per_candidate']:.2f} s "
            f"({plain['cpu_s_per_candidate']:.2f} -> {fast['cpu_s_per_candidate']:.2f} s CPU) per "
            f"candidate, {plain['forwards_per_s']} -> {fast['forwards_per_s']} forwards/s: "
            f"{record['forwards_per_s_ratio']}x ({record['forwards_per_cpu_s_ratio']}x by CPU "
            f"seconds), {record['same']} of {len(params)} candidates the same",
            flush=True,
        )

    def summary(self, prefix: str) -> dict[str, Any]:
        """Medians over the records whose label begins with `prefix`."""
        chosen = [r for r in self.records if r["workload"].startswith(prefix)]

        def median(*path: str) -> float:
            values = [r[path[0]] if len(path) == 1 else r[path[0]][path[1]] for r in chosen]
            return round(statistics.median(values), 3)

        keys = (
            "seconds_per_candidate",
            "cpu_s_per_candidate",
            "forwards_per_s",
            "forwards_per_cpu_s",
        )
        return {
            "pairs": len(chosen),
            **{path: {key: median(path, key) for key in keys} for path in self.paths},
            "forwards_per_s_ratio": median("forwards_per_s_ratio"),
            "forwards_per_cpu_s_ratio": median("forwards_per_cpu_s_ratio"),
            "candidates": sum(r["candidates"] for r in chosen),
            "same": sum(r["same"] for r in chosen),
            "greedy": sum(r["greedy"] for r in chosen),
            "same_greedy": sum(r["same_greedy"] for r in chosen),
        }


def run_schedule(pairs: Pairs, loaded: LoadedModel, options: argparse.Namespace) -> None:
    rng = random.Random(0)
    text = " ".join(f"w{rng.randrange(4000)}" for _ in range(options.prompt_words))
    prompt = Prompt(problem="benchmark", template=loaded.template, text=text)
    params = [
        SamplingParams(
            max_new_tokens=options.new_tokens,
            denoising_steps=loaded.block_size // options.per_step,
            remasking_strategy="low_confidence_static",
            temperature=options.temperature,
            seed=seed,
        )
        for seed in range(options.candidates)
    ]
    for _ in range(options.rounds):
        pairs.run("schedule, alone", prompt, params[:1])
        pairs.run("schedule, together", prompt, params)


def run_examples(pairs: Pairs, loaded: LoadedModel, candidates: int) -> None:
    from dice.cli.generate import sampling_plan
    from dice.problems import load_problem
    from dice.prompts import render

    params = sampling_plan(
        candidates,
        0,
        loaded.generation,
        temperature=None,
        threshold=None,
        steps=None,
        max_new_tokens=None,
    )
    for path in sorted((ROOT / "examples").glob("*.py")):
        pairs.run(f"examples, {path.stem}", render(load_problem(path), loaded.template), params)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="checkpoint folder or 'nano'; default random weights")
    parser.add_argument("--examples", type=int, default=0, help="candidates of each example")
    parser.add_argument("--kv-heads", type=int, default=6)
    parser.add_argument("--prompt-words", type=int, default=100)
    parser.add_argument("--new-tokens", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--per-step", type=int, default=2, choices=(1, 2, 4))
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of the schedule workload")
    parser.add_argument("--out", type=Path, help="default benchmarks/results/decode_nano.json")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    loaded = load_model(options.model) if options.model else random_nano(options.kv_heads)
    pairs = Pairs(loaded)
    for llm in pairs.paths.values():
        warm = Prompt(problem="warm-up", template=loaded.template, text="w1 w2")
        llm.generate([warm], SamplingParams(max_new_tokens=16))
    run_schedule(pairs, loaded, options)
    groups = ["schedule, alone", "schedule, together"]
    if options.examples:
        run_examples(pairs, loaded, options.examples)
        groups.append("examples")
    summary = {
        "model": loaded.name,
        "threads": options.threads,
        "per_step": options.per_step,
        **{group: pairs.summary(group) for group in groups},
    }
    for group in groups:
        print(f"{group}: {summary[group]}")
    write_results("decode_nano", summary, pairs.records, options.out)


if __name__ == "__main__":
    main()
