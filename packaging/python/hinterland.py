"""What a Python program says to Hinterland while it runs: which part of it counts, and, by hints, what use it will make of its memory.
Without Hinterland nothing happens.

    import hinterland

    with hinterland.region("fft"):
        data = numpy.fromfile(path)
        numpy.fft.rfft(data)

`hinterland trace` records only what is inside, and `hinterland run --tape` follows its tape only there.

    hinterland.fetch(data[1 << 20:2 << 20])

begins to fetch what is far of a buffer: of an array of numpy, a memoryview, or any other object with the buffer protocol; `fetchv` that of several,
in one call: `hinterland.fetchv(table[row] for row in coming)`. Where its elements do not lie together (`data[::2]`), `fetch`, `fetchv`, `keep` and `release` mean all from the first to the last, and `evict`, `evict_soon` and `overwrite` do
nothing. Hints cannot fail, and do not wait for far memory; none but `overwrite` changes content.
"""

import ctypes
import functools
import itertools
import mmap
import operator
import os
import sys

__all__ = ["region", "fetch", "fetchv", "evict", "evict_soon", "keep", "release", "overwrite", "phase"]

_MODES = {"record": 1, "prefetch": 2, "auto": 3}
_IN_FORCE = {0: None, 1: "record", 2: "prefetch"}


def _library():
    """The functions of the preloaded library, or None."""
    try:
        loaded = ctypes.CDLL(None, use_errno=True)
        return loaded.hinterland_begin, loaded.hinterland_end
    except (AttributeError, OSError):
        return None


_FUNCTIONS = _library()


class _Table(ctypes.Structure):
    """The beginning of struct hinterland_hints (hinterland.h)."""

    _fields_ = [("version", ctypes.c_uint32), ("bytes", ctypes.c_uint32)] + [
        (name, ctypes.c_void_p)
        for name in "fetch fetchv evict evict_soon keep release overwrite phase loop_begin loop_end loop_fetch loop_fetchv".split()
    ]


class _Loop(ctypes.Structure):
    """struct hinterland_loop, and the text that is its name."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("state", ctypes.c_uint64 * 7),
        ("walk", ctypes.c_uint64),
        ("text", ctypes.c_char * 128),
    ]


class _Places:
    """Lines that fetch: the library judges each by its own hints, and knows it by the address of a struct hinterland_loop. Those are in shared
    memory, which is never far. Places beyond `MOST` are one."""

    MOST = 256

    def __init__(self):
        self._memory = mmap.mmap(-1, self.MOST * ctypes.sizeof(_Loop))
        self._loops = {}
        self._numbers = itertools.count()

    def of(self, frame):
        """The address of the loop that stands for the line that a frame is at."""
        line = frame.f_code.co_filename, frame.f_lineno
        loop = self._loops.get(line)
        if loop is None:
            number = min(next(self._numbers), self.MOST - 1)
            loop = _Loop.from_buffer(self._memory, number * ctypes.sizeof(_Loop))
            name = f"{os.path.basename(line[0])}:{line[1]}" if number < self.MOST - 1 else "further lines"
            loop.text = name.encode(errors="replace")[:127]
            loop.name = ctypes.addressof(loop) + _Loop.text.offset
            loop = self._loops.setdefault(line, loop)
        return ctypes.addressof(loop)


def _hints():
    """The hints of the preloaded library by name; none where there is none."""
    try:
        loaded = ctypes.CDLL(None)
        loaded.hinterland_phase.argtypes, loaded.hinterland_phase.restype = [ctypes.c_uint], None
        found = {"phase": loaded.hinterland_phase}
        for name in ("evict", "evict_soon", "keep", "release", "overwrite"):
            found[name] = getattr(loaded, "hinterland_" + name)
            found[name].argtypes, found[name].restype = [ctypes.c_void_p, ctypes.c_size_t], None
        loaded.hinterland_hints.restype = ctypes.POINTER(_Table)
        table = loaded.hinterland_hints(1)
        if table:
            fetch = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
            found["fetch"] = fetch(table.contents.loop_fetch)
            fetchv = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t)
            found["fetchv"] = fetchv(table.contents.loop_fetchv)
        return found
    except (AttributeError, OSError):
        return {}


_HINTS = _hints()
_PLACES = None


def _begin_places():
    global _PLACES
    _PLACES = _Places()


if "fetch" in _HINTS:
    _begin_places()
    # Parent and child would give the same loop to different lines.
    os.register_at_fork(after_in_child=_begin_places)


class _Buffer(ctypes.Structure):
    """Py_buffer (Include/pybuffer.h)."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]

    def span(self):
        """The first address, and the bytes from there to the end of the last element."""
        if self.len == 0 or not self.strides:
            return self.buf, self.len
        steps = [(self.shape[axis] - 1) * self.strides[axis] for axis in range(self.ndim)]
        before = sum(min(step, 0) for step in steps)
        return self.buf + before, sum(max(step, 0) for step in steps) - before + self.itemsize

    def is_whole(self):
        """Whether its elements lie together, in whatever order."""
        return bool(ctypes.pythonapi.PyBuffer_IsContiguous(ctypes.byref(self), ctypes.c_char(b"A")))


# PyBUF_INDIRECT, any layout of bytes, which need not be writable; and PyBUF_WRITABLE.
_ANY, _WRITABLE = 0x118, 1


def _with_span(hint, buffer, flags=_ANY, wants_whole=False):
    """Calls `hint` with the first address and the bytes of a buffer, unless those are not in one piece."""
    view = _Buffer()
    # Raises what is wrong with the object.
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), ctypes.byref(view), flags)
    try:
        if hint and not view.suboffsets and (not wants_whole or view.is_whole()):
            hint(*view.span())
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))


def _hint(name, buffer, flags=_ANY, wants_whole=False):
    _with_span(_HINTS.get(name), buffer, flags, wants_whole)


def fetch(buffer):
    """Begins to fetch what is far of a buffer, and returns at once."""
    _with_span(_PLACES and functools.partial(_HINTS["fetch"], _PLACES.of(sys._getframe(1))), buffer)


def fetchv(buffers):
    """Begins to fetch what is far of each of several buffers, and returns at once."""
    addresses = {}  # by length, which is one in each call
    for buffer in buffers:
        _with_span(lambda address, length: addresses.setdefault(length, []).append(address), buffer)
    for length, those in addresses.items() if _PLACES else ():
        count = len(those)
        _HINTS["fetchv"](_PLACES.of(sys._getframe(1)), (ctypes.c_void_p * count)(*those), count, length)


def evict(buffer):
    """The pages wholly inside a buffer leave, before any others."""
    _hint("evict", buffer, wants_whole=True)


def evict_soon(buffer):
    """The pages wholly inside a buffer leave before any others when memory is needed."""
    _hint("evict_soon", buffer, wants_whole=True)


def keep(buffer):
    """A buffer's pages stay until they are released as often: a quarter of local memory at most."""
    _hint("keep", buffer)


def release(buffer):
    """Takes `keep` back."""
    _hint("release", buffer)


def overwrite(buffer):
    """A promise: this thread writes every byte of a buffer before anything reads it, so that it need not be fetched. A promise that is not kept
    loses what the buffer held."""
    _hint("overwrite", buffer, _ANY | _WRITABLE, wants_whole=True)


def phase(number):
    """A phase of the program begins, with a number of its own choice."""
    number = operator.index(number)
    if "phase" in _HINTS:
        _HINTS["phase"](number)


class region:
    """An interval of the process, as a context manager.

    name: for messages.
    mode: "record": recorded if the run records, "prefetch": the tape is followed if the run has one, "auto": whichever of both.

    Inside, `in_force` is what is done: "record", "prefetch", or None. Memory that was allocated before is not recorded. A region inside
    another one changes nothing.
    """

    def __init__(self, name, mode="auto"):
        if mode not in _MODES:
            raise ValueError(f"region {name!r}: mode {mode!r} is none of {', '.join(_MODES)}")
        self.name = name
        self.mode = mode
        self.in_force = None

    def __enter__(self):
        if _FUNCTIONS is not None:
            begin, _ = _FUNCTIONS
            self.in_force = _IN_FORCE[_checked(self.name, begin(_MODES[self.mode]))]
        return self

    def __exit__(self, *_):
        self.in_force = None
        if _FUNCTIONS is not None:
            _, end = _FUNCTIONS
            _checked(self.name, end())

    def __repr__(self):
        return f"<hinterland.region {self.name!r}, {self.mode}>"


def _checked(name, result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"region {name!r}: {os.strerror(number)}")
    return result
