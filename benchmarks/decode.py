"""Decoding speed on a GPU at the real shapes, random weights, against the memory, the plain path and a peer.

    python benchmarks/decode.py --shapes 1.7B,4B,8B --batches 1,16,128 --denoising-steps 4,2 --plain
    python benchmarks/decode.py --peer ../lmdeploy --peer-python ../lmdeploy/.venv/bin/python
    python benchmarks/decode.py --scale --shapes 8B

Stop tokens are ignored and the schedule is fixed (low_confidence_static), so tokens per forward are the same
everywhere: block size / denoising steps. For every case it prints forwards and response tokens a second of
the paged engine, the share of the ceiling, with `--plain` the ratio to the plain path and with `--peer` the
ratio to LMDeploy (see decode_peer.py), all in the same run. `--scale` measures throughput and memory by
batch and context instead (see decode_scale.py); decode_plot.py draws that.
The ceiling of a forward is (weights without untied input embeddings, plus the keys and values that it reads)
over the measured bandwidth, or for large batches that plus matrix arithmetic over the measured rate.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import decode_peer
import decode_scale
import machine
from decode_cases import decode_timed, load, prompts, save, sequences, wait
from dice.engine.loop import decode
from dice.engine.plain import PlainDecoder
from dice.models.load import LoadedModel


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
    whole_tokens_per_s: float
    """The same, prefill counted."""
    prefill_s: float
    ceiling_s: float
    """Of all forwards together."""
    share_of_ceiling: float
    plain_tokens_per_s: float | None
    peer: str | None = None
    peer_whole_tokens_per_s: float | None = None
    ratio_to_peer: float | None = None
    """Of tokens a second, prefill counted; above 1 is faster than the peer."""
    equal_tokens: float | None = None
    """Share of positions where both wrote the same token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A row, and what was written."""

    case: Case
    tokens: list[list[int]]


def measure(
    loaded: LoadedModel, batch: int, steps: int, args: argparse.Namespace, peaks: Any
) -> Measured:
    """Decode twice, the first time to capture graphs; the second is timed."""
    timed = decode_timed(loaded, batch, steps, args.prompt, args.new)
    ceiling = ceiling_s(loaded, batch, timed.forwards, args, peaks)
    plain = plain_rate(loaded, batch, steps, args) if args.plain else None
    case = Case(
        shape=loaded.name,
        batch=batch,
        denoising_steps=steps,
        forwards=timed.forwards,
        forwards_per_s=round(timed.forwards / timed.decode_s, 1),
        tokens_per_s=round(batch * args.new / timed.decode_s, 1),
        whole_tokens_per_s=round(batch * args.new / (timed.prefill_s + timed.decode_s), 1),
        prefill_s=round(timed.prefill_s, 3),
        ceiling_s=round(ceiling, 4),
        share_of_ceiling=round(ceiling / timed.decode_s, 3),
        plain_tokens_per_s=plain,
    )
    return Measured(case=case, tokens=timed.tokens)


def with_peer(one: Measured, result: decode_peer.Result, new: int) -> Case:
    """The row with what the peer took for the same requests."""
    theirs = one.case.batch * new / result.seconds
    return replace(
        one.case,
        peer=f"lmdeploy {result.version}",
        peer_whole_tokens_per_s=round(theirs, 1),
        ratio_to_peer=round(one.case.whole_tokens_per_s / theirs, 3),
        equal_tokens=round(decode_peer.equal_share(one.tokens, result.tokens), 3),
    )


def compare(
    loaded: LoadedModel, checkpoint: Path, measured: list[Measured], args: argparse.Namespace
) -> list[Case]:
    """The rows of one number of denoising steps, all decoded by one process of the peer."""
    if args.device == "cuda":
        torch.cuda.empty_cache()
    cases = [one.case for one in measured]
    job = decode_peer.Job(
        checkpoint=str(checkpoint),
        block_size=loaded.block_size,
        denoising_steps=cases[0].denoising_steps,
        new_tokens=args.new,
        prompts=[prompts(loaded, case.batch, args.prompt) for case in cases],
    )
    results = decode_peer.run(args.peer, job, python=args.peer_python)
    return [with_peer(one, result, args.new) for one, result in zip(measured, results, strict=True)]


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


def cases_of(
    loaded: LoadedModel, checkpoint: Path | None, args: argparse.Namespace, peaks: Any
) -> list[Case]:
    """All rows of one model; the peer reads `checkpoint`."""
    cases: list[Case] = []
    for steps in map(int, args.denoising_steps.split(",")):
        measured = [
            measure(loaded, batch, steps, args, peaks)
            for batch in map(int, args.batches.split(","))
        ]
        rows = [one.case for one in measured]
        if checkpoint is not None:
            rows = compare(loaded, checkpoint, measured, args)
        for row in rows:
            print(json.dumps(asdict(row)), flush=True)
        cases += rows
    return cases


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments, checked as far as that needs no GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="1.7B,4B,8B")
    parser.add_argument("--batches", help="default: 1,16,128; with --scale 1,4,16,64,256")
    parser.add_argument("--denoising-steps", default="4,2", help="--scale takes the first")
    parser.add_argument("--block-size", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--new", type=int, help="default: 1024; with --scale 256")
    parser.add_argument("--plain", action="store_true", help="also the plain path")
    parser.add_argument("--plain-new", type=int, default=64, help="tokens that it generates")
    parser.add_argument("--peer", type=Path, help="also LMDeploy, from this checkout")
    parser.add_argument("--peer-python", default=sys.executable, help="that has what it needs")
    parser.add_argument("--scale", action="store_true", help="by batch and context instead")
    parser.add_argument("--contexts", default="1024,4096,16384", help="for --scale")
    parser.add_argument(
        "--compute-bound", type=int, default=64, help="batches that are, from here on"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/ on a GPU")
    args = parser.parse_args(argv)
    if args.scale and (args.peer or args.plain):
        parser.error("--scale measures the paged engine alone")
    args.batches = args.batches or ("1,4,16,64,256" if args.scale else "1,16,128")
    args.new = args.new or (256 if args.scale else 1024)
    if args.peer:
        for steps in map(int, args.denoising_steps.split(",")):
            try:
                decode_peer.check_schedule(args.block_size, steps)
            except decode_peer.PeerError as error:
                parser.error(str(error))
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    peaks: dict[str, float] = {}
    if not args.scale:
        peaks = measure_peaks(args.device)
        print({name: f"{value:.3g}" for name, value in peaks.items()}, flush=True)
    records: list[dict[str, Any]] = []
    for shape in args.shapes.split(","):
        loaded = load(shape, args.block_size, args.device)
        if args.scale:
            records += [asdict(row) for row in decode_scale.rows(loaded, args)]
        elif args.peer:
            with tempfile.TemporaryDirectory() as folder:
                save(loaded, Path(folder))
                records += [asdict(one) for one in cases_of(loaded, Path(folder), args, peaks)]
        else:
            records += [asdict(one) for one in cases_of(loaded, None, args, peaks)]
        del loaded
        if args.device == "cuda":
            torch.cuda.empty_cache()
    if args.out is not None or args.device == "cuda":
        machine.write_results("decode_scale" if args.scale else "decode", peaks, records, args.out)


if __name__ == "__main__":
    main()
