"""What the synthesiser draws: families, schedules, lengths, and how fast; optionally whether it is right.

    python benchmarks/synth_report.py --count 2000
    python benchmarks/synth_report.py --count 10 --per-family --verify

`--verify` compiles and runs every pair on the CPU emulator in check mode (about a second a pair).
"""

import argparse
import random
import time
from collections import Counter, defaultdict

from dice.data.synth import FAMILIES, Pair, sample_pair
from dice.prompts.render import canonical_code

CHARS_PER_TOKEN = 3.2
GROUP = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="pairs, or pairs of each family")
    parser.add_argument("--per-family", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verify", action="store_true")
    args = parser.parse_args()
    names: list[str | None] = [f.name for f in FAMILIES] if args.per_family else [None]
    start = time.perf_counter()
    pairs = [
        sample_pair(random.Random(f"{name} {args.seed} {k}"), name)
        for name in names
        for k in range(args.count)
    ]
    seconds = time.perf_counter() - start
    report(pairs, seconds)
    if args.verify:
        verify(pairs)


def report(pairs: list[Pair], seconds: float) -> None:
    """Counts and lengths by family."""
    print(f"{len(pairs)} pairs in {seconds:.1f} s, {len({p.problem_code for p in pairs})} distinct")
    print(f"{len({p.ops for p in pairs})} compositions of operators")
    by_family: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_family[pair.family].append(pair)
    print(f"{'family':16} {'pairs':>6} {'problem':>8} {'kernel':>7} {'longest':>8}  schedules")
    for name, group in sorted(by_family.items()):
        problem = sum(len(canonical_code(p.problem_code)) for p in group) / len(group)
        kernel = sum(len(p.kernel_code) for p in group) / len(group)
        longest = max(len(p.kernel_code) for p in group)
        schedules = ", ".join(
            f"{s} {c}" for s, c in Counter(p.schedule for p in group).most_common()
        )
        print(
            f"{name:16} {len(group):6} {problem / CHARS_PER_TOKEN:8.0f} {kernel / CHARS_PER_TOKEN:7.0f} "
            f"{longest / CHARS_PER_TOKEN:8.0f}  {schedules}"
        )
    print(f"lengths are characters / {CHARS_PER_TOKEN}, an estimate of tokens")


def verify(pairs: list[Pair]) -> None:
    """Run every pair; print what fails."""
    from dice.data.verify_pairs import CheckOptions, verify_group
    from dice.toolchain.source import BuildOptions

    options = CheckOptions(build=BuildOptions(check=True))
    failed = 0
    start = time.perf_counter()
    for k in range(0, len(pairs), GROUP):
        group = pairs[k : k + GROUP]
        for pair, verdict in zip(group, verify_group(group, options), strict=True):
            if verdict is not None:
                failed += 1
                print(f"FAILED {pair.family} {pair.schedule} {'_'.join(pair.ops)}: {verdict}")
    print(f"{len(pairs) - failed} of {len(pairs)} right, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
