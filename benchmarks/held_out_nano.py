"""How often does nano's greedy answer to a held-out composition equal the teacher's text?

python benchmarks/nano_pairs.py --out runs/nano_pairs
python benchmarks/held_out_nano.py runs/nano_pairs/held_out.jsonl
"""

import argparse
import json
import time
from pathlib import Path

import torch

from dice.data.records import read_records
from dice.engine import LLM, SamplingParams
from dice.models.load import load_model
from dice.problems.parse import parse_problem
from dice.prompts import render


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("held_out", type=Path)
    parser.add_argument("--rows", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    records = list(read_records(args.held_out))
    llm = LLM(load_model("nano"), max_rows=args.rows)
    began = time.perf_counter()
    prompts = [
        render(parse_problem(r.problem_code, name=str(r.index), source="synth")) for r in records
    ]
    completions = llm.generate(prompts, SamplingParams(max_new_tokens=1536))
    exact = [c.text == r.kernel_code for c, r in zip(completions, records, strict=True)]
    tokens = sum(len(c.token_ids) for c in completions)
    result = {
        "held_out": len(records),
        "exact": sum(exact),
        "tokens_per_forward": round(tokens / sum(c.forwards for c in completions), 2),
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
