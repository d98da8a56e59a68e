"""How kernels are compiled: one decorator, and the two instructions that numba does not offer.

Covering and services compile theirs with it, too. The only file that touches numba, and its cache.

A kernel is compiled when it is called for the first time, and numba is imported then, not before:
who imports a file with kernels need not have it. It is the extra `denwatch[fast]`. A process that
has called every kernel once says so (`declare_ready`); until then matching and covering have ways
of their own without kernels. `index.warm_up` does both.

Numba notices when the file that defines a kernel changes, but not when another file changes whose
functions or constants the kernel uses: it would go on running the old code from disk. So the cache
of every kernel carries a stamp: a hash of the kernel's own file, of every file of this folder that
defines kernels, and of the protocol's tables and codes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from denwatch.protocol import degrees, slopes, vectors

Array = Any  # numba infers dtype and dimensions at the first call
# To mypy these are Any, because in a kernel they mix with int as numpy's own types may not.
int64: Any = np.int64
uint64: Any = np.uint64
Function = TypeVar("Function", bound=Callable[..., Any])


class NotInstalled(ImportError):
    """A kernel was called where the extra is missing."""


def is_installed() -> bool:
    """Return whether numba could be imported."""
    return find_spec("numba") is not None


_is_ready = False


def is_ready() -> bool:
    """Return whether kernels may be used: calling one compiles nothing, and does not wait."""
    return _is_ready


def declare_ready(is_so: bool = True) -> None:
    """Say that every kernel has been called once in this process, or that none is to be used."""
    global _is_ready
    _is_ready = is_so


def load() -> Any:
    """Import numba and return it. All programs of a user share one cache of kernels."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(folder / "denwatch" / "numba"))
    try:
        import numba  # its import takes a second and 100 MB, so it waits for the first kernel
    except ImportError as error:
        raise NotInstalled(f"compiled matching needs denwatch[fast]: {error}") from None
    return numba


class _Lazy:
    """What numba makes of something, made when it is first needed.

    Python code calls it; in a kernel that calls it, numba asks for its type (`_numba_type_`).
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    @property
    def made(self) -> Any:
        """What numba made of it."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def _numba_type_(self) -> Any:
        context = load().core.registry.cpu_target.typing_context
        made = self.made
        context.refresh()  # an intrinsic registers itself, to be read by the next one who asks
        return context.resolve_value_type(made)

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.made, name)


@cache
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


def _compile(function: Callable[..., Any]) -> Any:
    dispatcher = load().njit(cache=True, nogil=True)(function)
    own = Path(function.__code__.co_filename).read_bytes()
    stamp = hashlib.sha256(_digest_sources().encode() + own).hexdigest()
    dispatcher._cache._cache_file._source_stamp = stamp
    return dispatcher


def compiled(function: Function) -> Function:
    """Compile without the interpreter lock and keep the result on disk while no kernel changes."""
    kernel = _Lazy(lambda: _compile(function))
    kernel.__doc__ = function.__doc__
    return cast(Function, kernel)


def _make_bits() -> Any:
    types = load().types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    def type_bits(typing: Any, word: Any) -> Any:  # noqa: ARG001 - numba's signature
        return types.int64(types.int64), generate

    return load().extending.intrinsic(type_bits)


def _make_prefetch() -> Any:
    types = load().types
    from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types

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

    def type_prefetch(typing: Any, array: Any, at: Any) -> Any:  # noqa: ARG001 - numba's signature
        return types.void(array, types.int64), generate

    return load().extending.intrinsic(type_prefetch)


# count_trailing_zeros(word): the place of the lowest bit that is set in a word that is not 0.
count_trailing_zeros: Any = _Lazy(_make_bits)
# prefetch(array, at): ask for the cache line of array[at] without waiting for it.
prefetch: Any = _Lazy(_make_prefetch)
