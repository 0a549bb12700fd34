"""Write src/dice/data/eval_hashes.txt from the public evaluation sets.

    python benchmarks/eval_hashes.py DATA_FOLDER

DATA_FOLDER holds kernelbench_v0.2.jsonl, dice_rl_problems_4000.jsonl and dice_infilling_eval_99.jsonl.
"""

import json
import sys
from pathlib import Path

from dice.data.decontaminate import EVAL_HASHES, short_hash

SETS = {
    "kernelbench_v0.2.jsonl": "code",
    "dice_rl_problems_4000.jsonl": "pytorch_code",
    "dice_infilling_eval_99.jsonl": "pytorch_code",
}
EXAMPLES = Path(__file__).parents[1] / "examples"


def hashes(folder: Path) -> list[str]:
    """Sorted hashes of every problem of the sets and of the examples."""
    codes = [path.read_text() for path in EXAMPLES.glob("*.py")]
    for name, field in SETS.items():
        codes += [json.loads(line)[field] for line in (folder / name).read_text().splitlines()]
    return sorted({short_hash(code) for code in codes})


if __name__ == "__main__":
    found = hashes(Path(sys.argv[1]))
    head = (
        "# Normalised hashes of evaluation problems; benchmarks/eval_hashes.py writes this file.\n"
    )
    EVAL_HASHES.write_text(head + "\n".join(found) + "\n")
    print(f"{len(found)} hashes -> {EVAL_HASHES}")
