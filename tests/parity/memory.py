"""Tells the C library to keep the memory of large tensors for the next ones.

Otherwise each is mapped afresh and its pages cleared one by one: attention matrices then cost five times as much.
"""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # of glibc's malloc.h


def keep():
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)  # never: it is read as the largest size_t
        library.mallopt(M_TOP_PAD, 2**28)
