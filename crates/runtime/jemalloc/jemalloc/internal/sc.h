/*
 * Size classes of the far heap: 16 from each power of two to the next instead of jemalloc's 4 (decision 0057).
 *
 * Stands before jemalloc's own sc.h in the search path (.cargo/config.toml), reads it and changes SC_LG_NGROUP; all that
 * depends on it are macros, which are expanded later. One thing is not: the array of classes in sc_data_s. It is made long
 * enough by telling sc.h of addresses of 512 bits. Cargo sees a change here by the number in .cargo/config.toml.
 */
#ifndef HINTERLAND_SC_H
#define HINTERLAND_SC_H

#pragma push_macro("LG_SIZEOF_PTR")
#undef LG_SIZEOF_PTR
#define LG_SIZEOF_PTR 6
#include_next "jemalloc/internal/sc.h"
#pragma pop_macro("LG_SIZEOF_PTR")

#undef SC_LG_NGROUP
#define SC_LG_NGROUP 4

_Static_assert(sizeof(((sc_data_t *)0)->sc) / sizeof(sc_t) >= SC_NSIZES, "room for every size class");
/* sz_size2index_tab keeps indices in bytes; its last is that of SC_LOOKUP_MAXCLASS. sc.h asks it of all small classes. */
_Static_assert(SC_NTINY + SC_NGROUP * (SC_LG_MAX_LOOKUP - SC_LG_FIRST_REGULAR_BASE + 1) <= 256,
    "the indices of the lookup table fit its bytes");

#endif /* HINTERLAND_SC_H */
