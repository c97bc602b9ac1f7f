/*
 * Bitmaps of slabs have a bit for each object that the largest slab can have: 512, as in jemalloc's own build (decision 0105).
 *
 * Stands before jemalloc's own bitmap.h in the search path, as sc.h beside it. jemalloc makes a bitmap as long as there are size classes, if these are
 * more: from the time when one was searched for extents. With the 16 classes of sc.h that would be 1,024 bits in a tree, and each extent's header,
 * which has one, would take 256 bytes instead of 128.
 */
#ifndef HINTERLAND_BITMAP_H
#define HINTERLAND_BITMAP_H

#include "jemalloc/internal/sc.h"

#pragma push_macro("SC_NSIZES")
#undef SC_NSIZES
#define SC_NSIZES 1
#include_next "jemalloc/internal/bitmap.h"
#pragma pop_macro("SC_NSIZES")

_Static_assert(BITMAP_MAXBITS == 1 << SC_LG_SLAB_MAXREGS, "a bit for each object of the largest slab");

#endif /* HINTERLAND_BITMAP_H */
