"""Decoding on a GPU: paged keys and values, state on the device, a whole step without the host.

Needs Triton, which comes with PyTorch for CUDA. The kernels also run in Triton's interpreter, where
their tests compare them with plain PyTorch.
"""
