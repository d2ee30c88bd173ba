"""`inspect`: what is in a file, ours or anybody's, and how two files differ. Free of torch."""

from stages.inspect.describe import inspect
from stages.inspect.difference import difference

__all__ = ["difference", "inspect"]
