"""What a Python program says to Hinterland while it runs. Without Hinterland nothing happens.

    import hinterland

    with hinterland.region("fft"):
        data = numpy.fromfile(path)
        numpy.fft.rfft(data)

`hinterland trace` records only what is inside, and `hinterland run --tape` follows its tape only there.
"""

import ctypes
import os

__all__ = ["region"]

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
