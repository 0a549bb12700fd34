"""The CPU backend: CUDA kernels as loops and fibers over CPU tensors."""
