"""The forward of a float32 model on CPU cores, in one compiled function instead of a hundred small ones."""

from dice.engine.native.forward import NativeForward, worthwhile

__all__ = ["NativeForward", "worthwhile"]
