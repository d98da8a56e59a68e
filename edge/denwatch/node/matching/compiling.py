"""How kernels are compiled: one decorator, and the two instructions that numba does not offer.

Covering and services compile theirs with it, too. The only file that touches numba's cache. Numba
notices when the file that defines a kernel changes, but not when another file changes whose
functions or constants the kernel uses: it would go on running the old code from disk. So the cache
of every kernel carries a stamp: a hash of the kernel's own file, of every file of this folder that
defines kernels, and of the protocol's tables and codes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from denwatch.protocol import degrees, slopes, vectors
from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import njit, types
from numba.extending import intrinsic

Array = Any  # numba infers dtype and dimensions at the first call
# To mypy these are Any, because in a kernel they mix with int as numpy's own types may not.
int64: Any = np.int64
uint64: Any = np.uint64
Function = TypeVar("Function", bound=Callable[..., Any])


def _digest_sources() -> str:
    """Return a hash of all that a kernel may call into or take constants from."""
    digest = hashlib.sha256()
    for module in (degrees, slopes, vectors):
        digest.update(Path(str(module.__file__)).read_bytes())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_bytes()
        if b"@compiled" in source or path.name == Path(__file__).name:
            digest.update(source)
    return digest.hexdigest()


_STAMP = _digest_sources()


def compiled(function: Function) -> Function:
    """Compile without the interpreter lock and keep the result on disk while no kernel changes."""
    dispatcher: Any = njit(cache=True, nogil=True)(function)
    own = Path(function.__code__.co_filename).read_bytes()
    stamp = hashlib.sha256(_STAMP.encode() + own).hexdigest()
    dispatcher._cache._cache_file._source_stamp = stamp
    return cast(Function, dispatcher)


def _type_bits(typing: Any, word: Any) -> Any:  # noqa: ARG001 - numba's signature
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.int64), generate


def _type_prefetch(typing: Any, array: Any, at: Any) -> Any:  # noqa: ARG001 - numba's signature
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(struct.data, [arguments[1]])
        byte = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        name = "llvm.prefetch.p0i8"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        numbers = [ir.Constant(word, number) for number in (0, 3, 1)]  # read, keep, data
        builder.call(function, [builder.bitcast(pointer, byte), *numbers])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


# count_trailing_zeros(word): the place of the lowest bit that is set in a word that is not 0.
count_trailing_zeros: Any = intrinsic(_type_bits)
# prefetch(array, at): ask for the cache line of array[at] without waiting for it.
prefetch: Any = intrinsic(_type_prefetch)
