"""CUDA extensions for a GPU, built by splitting device and host code (DESIGN section 4)."""
