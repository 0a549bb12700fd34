"""Triton decides when it is imported whether its kernels run in the interpreter."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
