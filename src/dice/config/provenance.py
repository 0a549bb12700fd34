"""What a run was made with: versions, revision, device. Torch is imported by the call, not by the module."""

import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dice


def provenance() -> dict[str, Any]:
    """Versions, revision and device of this process."""
    import torch
    import transformers

    cuda = torch.cuda.is_available()
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": sys.argv,
        "dice": dice.__version__,
        "git_revision": _git_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "cpu",
        "machine": platform.platform(),
    }


def _git_revision() -> str | None:
    """Commit of the checkout this package runs from, "+dirty" when it has changes; None if unknown."""
    folder = Path(dice.__file__).parent
    answers = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *command], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return None
        answers.append(done.stdout.strip())
    return answers[0] + ("+dirty" if answers[1] else "")
