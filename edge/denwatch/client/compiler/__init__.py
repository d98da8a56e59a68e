"""Syntax trees to subscription vectors, and back to what a person can read.

- `compile_subscription(tree, vocabulary)`: the vector, its bytes, what was approximated, options;
- `decompile(vector_or_bytes, vocabulary)`: a tree that compiles to the same bytes.
"""

from denwatch.client.compiler.compiler import compile_subscription
from denwatch.client.compiler.decompiler import decompile
from denwatch.client.compiler.settings import Approximation, CompiledSubscription, Options

__all__ = ["Approximation", "CompiledSubscription", "Options", "compile_subscription", "decompile"]
