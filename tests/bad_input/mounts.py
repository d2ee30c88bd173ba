"""Disks that are read-only or full, for one process alone: it has its own list of mounts. Not a test."""

import ctypes
import os

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS = 0x00020000


class CannotMount(Exception):
    pass


def mount(source, target, kind, flags, options=""):
    """Mount for this process alone: it has its own list of mounts."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [None if text is None else str(text).encode() for text in (source, target, kind)]
    if libc.mount(*arguments, ctypes.c_ulong(flags), options.encode()):
        raise CannotMount(os.strerror(ctypes.get_errno()))


def own_mounts():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise CannotMount(os.strerror(ctypes.get_errno()))
    mount(None, "/", None, MS_REC | MS_PRIVATE)


def read_only(folder):
    own_mounts()
    mount(folder, folder, None, MS_BIND)
    mount(None, folder, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def small_disk(folder, size):
    own_mounts()
    mount("none", folder, "tmpfs", 0, f"size={size}")
