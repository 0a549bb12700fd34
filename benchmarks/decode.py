"""Decoding speed on a GPU at the real shapes, random weights, against the memory and the plain path.

    python benchmarks/decode.py --shapes 1.7B,4B,8B --batches 1,16,128 --denoising-steps 4,2 --plain

Stop tokens are ignored and the schedule is fixed (low_confidence_static), so tokens per forward are the same
everywhere: block size / denoising steps. For every case it prints forwards and response tokens a second of
the paged engine, the share of the ceiling, and with `--plain` the ratio to the plain path in the same run.
The ceiling of a forward is (weights without untied input embeddings, plus the keys and values that it reads)
over the measured bandwidth, or for large batches that plus matrix arithmetic over the measured rate.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import machine
from dice.engine.canvas import Canvas
from dice.engine.loop import decode
from dice.engine.paged.runner import PagedRunner
from dice.engine.plain import PlainDecoder
from dice.engine.sampling import SamplingParams
from dice.engine.scheduler import Sequence
from dice.models.generation import GenerationDefaults
from dice.models.load import LoadedModel
from dice.models.sdar import SdarConfig, SdarForCausalLM

_SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64,
             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16},
    "1.7B": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
             "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
           "num_attention_heads": 32, "num_key_value_heads": 8},
    "8B": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
           "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table."""

    shape: str
    batch: int
    denoising_steps: int
    forwards: int
    forwards_per_s: float
    tokens_per_s: float
    """Response tokens of all sequences, prefill not counted."""
    prefill_s: float
    ceiling_s: float
    """Of all forwards together."""
    share_of_ceiling: float
    plain_tokens_per_s: float | None


def load(shape: str, block_size: int, device: str) -> LoadedModel:
    """A model of the shape with random weights."""
    small = shape == "tiny"
    config = SdarConfig(
        **{"vocab_size": 151936, "head_dim": 128, **_SHAPES[shape]},
        block_size=block_size,
        max_position_embeddings=512 if small else 32768,
        mask_token_id=5 if small else 151669,
        eos_token_id=2 if small else 151643,
    )
    torch.manual_seed(0)
    with torch.device(device):
        torch.set_default_dtype(torch.float32 if device == "cpu" else torch.bfloat16)
        model = SdarForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    return LoadedModel(
        name=shape,
        config=config,
        model=model,
        tokenizer=None,
        mask_token_id=config.mask_token_id,
        stop_token_ids=frozenset(),
        template="kernelbench",
        generation=GenerationDefaults(eos_token_id=(2,)),
    )


def sequences(loaded: LoadedModel, batch: int, steps: int, prompt: int, new: int) -> list[Sequence]:
    """Different prompts, so that nothing is shared."""
    draw = torch.Generator().manual_seed(1)
    params = SamplingParams(
        max_new_tokens=new, denoising_steps=steps, remasking_strategy="low_confidence_static"
    )
    made = []
    for request in range(batch):
        ids = torch.randint(6, loaded.config.vocab_size // 2, (prompt,), generator=draw).tolist()
        canvas = Canvas(
            ids, [None] * new, block_size=loaded.block_size, mask_token_id=loaded.mask_token_id
        )
        made.append(Sequence(request=request, canvas=canvas, params=params))
    return made


def measure(
    loaded: LoadedModel, batch: int, steps: int, args: argparse.Namespace, peaks: Any
) -> Case:
    """Decode twice, the first time to capture graphs; the second is timed."""
    seconds, prefill_s, forwards = 0.0, 0.0, 0
    runner = PagedRunner(loaded, batch, args.prompt + args.new + loaded.block_size)
    for _ in range(2):
        runner.weights_changed()  # the second round is to compute its prefixes too
        waiting = sequences(loaded, batch, steps, args.prompt, args.new)
        wait(args.device)
        started = time.perf_counter()
        assert len(runner.admit(waiting)) == batch
        wait(args.device)
        prefill_s = time.perf_counter() - started
        started = time.perf_counter()
        while runner.running:
            runner.step()
        wait(args.device)
        seconds = time.perf_counter() - started
        forwards = max(one.forwards for one in waiting)
    ceiling = ceiling_s(loaded, batch, forwards, args, peaks)
    plain = plain_rate(loaded, batch, steps, args) if args.plain else None
    return Case(
        shape=loaded.name,
        batch=batch,
        denoising_steps=steps,
        forwards=forwards,
        forwards_per_s=round(forwards / seconds, 1),
        tokens_per_s=round(batch * args.new / seconds, 1),
        prefill_s=round(prefill_s, 3),
        ceiling_s=round(ceiling, 4),
        share_of_ceiling=round(ceiling / seconds, 3),
        plain_tokens_per_s=plain,
    )


def ceiling_s(
    loaded: LoadedModel, batch: int, forwards: int, args: argparse.Namespace, peaks: Any
) -> float:
    """Seconds that the forwards take at the device's measured bandwidth and rate."""
    config, size = loaded.config, loaded.model.lm_head.weight.element_size()
    weights = sum(one.numel() for one in loaded.model.parameters())
    if not config.tie_word_embeddings:
        weights -= loaded.model.model.embed_tokens.weight.numel()
    context = args.prompt + args.new / 2
    values = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    kv_s = batch * context * values * size / peaks["bytes_per_s"]
    if batch < args.compute_bound:
        return forwards * (weights * size / peaks["bytes_per_s"] + kv_s)
    tokens = batch * loaded.block_size
    attended = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * context
    flops = tokens * (2 * weights + attended)
    return forwards * (flops / peaks["flops"] + kv_s)


def plain_rate(loaded: LoadedModel, batch: int, steps: int, args: argparse.Namespace) -> float:
    """Response tokens a second of the plain path, prefill left out by subtracting a short run."""
    seconds = []
    for new in (loaded.block_size, args.plain_new):
        made = sequences(loaded, batch, steps, args.prompt, new)
        wait(args.device)
        started = time.perf_counter()
        for _ in decode(PlainDecoder(loaded, batch, len(made[0].canvas)), made):
            pass
        wait(args.device)
        seconds.append(time.perf_counter() - started)
    return round(batch * (args.plain_new - loaded.block_size) / (seconds[1] - seconds[0]), 1)


def measure_peaks(device: str) -> dict[str, float]:
    """Bandwidth of a copy (read and written), and the rate of a matrix product in the weights' type."""
    large, dtype = (1 << 28, torch.bfloat16) if device == "cuda" else (1 << 20, torch.float32)
    source = torch.ones(large, device=device)
    target = torch.empty_like(source)
    size = 8192 if device == "cuda" else 256
    square = torch.ones(size, size, device=device, dtype=dtype)

    def best(call: Any) -> float:
        times = []
        for _ in range(12):
            wait(device)
            started = time.perf_counter()
            call()
            wait(device)
            times.append(time.perf_counter() - started)
        return sorted(times)[3]

    copy_s = best(lambda: target.copy_(source))
    product_s = best(lambda: square @ square)
    return {"bytes_per_s": 8 * large / copy_s, "flops": 2 * size**3 / product_s}


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="1.7B,4B,8B")
    parser.add_argument("--batches", default="1,16,128")
    parser.add_argument("--denoising-steps", default="4,2")
    parser.add_argument("--block-size", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--new", type=int, default=1024)
    parser.add_argument("--plain", action="store_true", help="also the plain path")
    parser.add_argument("--plain-new", type=int, default=64, help="tokens that it generates")
    parser.add_argument(
        "--compute-bound", type=int, default=64, help="batches that are, from here on"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/decode.json on a GPU")
    args = parser.parse_args()
    peaks = measure_peaks(args.device)
    print({name: f"{value:.3g}" for name, value in peaks.items()}, flush=True)
    cases = []
    for shape in args.shapes.split(","):
        loaded = load(shape, args.block_size, args.device)
        for batch in map(int, args.batches.split(",")):
            for steps in map(int, args.denoising_steps.split(",")):
                cases.append(measure(loaded, batch, steps, args, peaks))
                print(json.dumps(asdict(cases[-1])), flush=True)
        del loaded
        if args.device == "cuda":
            torch.cuda.empty_cache()
    if args.out is not None or args.device == "cuda":
        machine.write_results("decode", peaks, [asdict(one) for one in cases], args.out)


if __name__ == "__main__":
    main()
