"""DICE: diffusion language models that write CUDA kernels, and a verifier that proves them."""

__version__ = "0.1.0"
