"""Re-draw nano's training pairs, as trained on, without verifying them a second time.

Each was verified by running (`dice.data.build`, seed 0, 64,000 draws planned; the time allotted to
verification ended after 39,424, of which 18 were rejected). The outcomes were lost with the machine; its log
named seven of the rejected draws and told, for the others, in which shard of 512 draws they lay. Those nine
shards are left out whole, so that every pair that remains is one that was verified. Valid for the
synthesiser of commit ef83e5e.

    python benchmarks/nano_pairs.py --out runs/nano_pairs
"""

import argparse
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from dice.config.schema import BuildSection
from dice.data import build
from dice.data.decontaminate import is_held_out
from dice.data.records import PairRecord, write_records
from dice.prompts.render import canonical_code

DRAWS_PLANNED, DRAWS_VERIFIED, SHARD = 64_000, 39_424, 512
SHARDS_LEFT_OUT = {25, 30, 32, 36, 48, 52, 65, 66, 69}
DRAWS_REJECTED = {4431, 8077, 11212, 12243, 17387, 26697, 32020}


def record(index: int) -> PairRecord:
    pair = build.draw(0, index)
    return PairRecord(
        index=index,
        family=pair.family,
        schedule=pair.schedule,
        ops=pair.ops,
        problem_code=canonical_code(pair.problem_code),
        kernel_code=pair.kernel_code,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    config = BuildSection(pairs=DRAWS_PLANNED, seed=0)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        chosen = build._sort_out(pool, config, Counter())[:DRAWS_VERIFIED]
        kept = [
            index
            for place, index in enumerate(chosen)
            if place // SHARD not in SHARDS_LEFT_OUT and index not in DRAWS_REJECTED
        ]
        records = list(pool.map(record, kept, chunksize=200))
    for name, wanted in (("train", False), ("held_out", True)):
        part = [
            r
            for r in records
            if wanted
            == is_held_out(
                r.ops, fraction=config.held_out_fraction, min_ops=config.held_out_min_ops
            )
        ]
        write_records(args.out / f"{name}.jsonl", part)
        print(f"{name}: {len(part)} pairs")


if __name__ == "__main__":
    main()
