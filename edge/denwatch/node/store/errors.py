"""What can go wrong with a store. Every text says which store, what happened, and what to do."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot be used; also the base of the others."""


class StoreBusy(StoreError):
    """Another live process has the store open."""


class StoreDamaged(StoreError):
    """The file is not whole, or is no store at all."""


class StoreForeign(StoreError):
    """The store belongs to another node, or was written by a newer version."""


class StoreFull(StoreError):
    """The disk is full. The open group is lost; after `rollback` the store can be used again."""


class StoreFailed(StoreError):
    """Reading or writing failed. The open group is lost, and the store must be opened anew."""


class Crashed(BaseException):
    """The emulated process died (memory store only).

    Not an `Exception`, so that no handler of the code under test survives its own death.
    """
