"""The stock way to verify one candidate, as the peer to compare with: `python stock_verify.py JOB.json`.

A new Python process imports torch, lets `torch.utils.cpp_extension.load_inline` build the candidate with
nvcc over torch/extension.h for this GPU's architecture in an empty extension folder, and compares it
with the problem's module on five inputs at the tolerance of `simt_infilling.difference`. Prints one JSON
line: seconds for import, build and check, and how it ended.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from simt_infilling import copied, copy_state, difference, execute

TRIALS = 5


def verify(problem: str, code: str) -> dict[str, Any]:
    """Build, run and compare; seconds of each stage."""
    started = time.monotonic()
    import torch
    from torch.utils import cpp_extension

    record: dict[str, Any] = {"import_s": time.monotonic() - started, "build_s": 0.0}
    stock = cpp_extension.load_inline

    def timed(*arguments: Any, **options: Any) -> Any:
        begin = time.monotonic()
        try:
            return stock(*arguments, **options)
        finally:
            record["build_s"] += time.monotonic() - begin

    cpp_extension.load_inline = timed
    reference = execute(problem, "problem")
    try:
        candidate = execute(code, "candidate")
        init = reference["get_init_inputs"]()
        torch.manual_seed(42)
        model = reference["Model"](*init).cuda()
        torch.manual_seed(42)
        new = candidate["ModelNew"](*init).cuda()
        copy_state(model, new)
    except Exception as error:
        return record | {"ending": "failed", "reason": f"{type(error).__name__}: {error}"[:400]}
    begin = time.monotonic()
    reason = None
    for trial in range(TRIALS):
        torch.manual_seed(1000 + trial)
        inputs = [one.cuda() if torch.is_tensor(one) else one for one in reference["get_inputs"]()]
        try:
            with torch.no_grad():
                expected, actual = model(*copied(inputs)), new(*copied(inputs))
            torch.cuda.synchronize()
            reason = difference(expected, actual)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:400]
        if reason is not None:
            break
    record["check_s"] = time.monotonic() - begin
    return record | {"ending": "match" if reason is None else "mismatch", "reason": reason}


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text())
    with tempfile.TemporaryDirectory(prefix="stock-") as folder:
        os.environ["TORCH_EXTENSIONS_DIR"] = folder
        started = time.monotonic()
        record = verify(job["problem"], job["code"])
        record["total_s"] = time.monotonic() - started
    print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
