// Memory in every state that a far page can be in, for calls that are handed it. Natively all of it is plain memory.
#pragma once
#include "check.h"

enum state { NEAR, WARM, COLD, STRADDLING, PROTECTED, WILD, STATES };
static const char *const state_names[] = {"near", "warm", "cold", "straddling", "protected", "wild"};

static char near_room[64 * 1024] __attribute__((aligned(4096)));
static char *far_room, *filler;
enum { FAR_ROOM = 512 * 1024, FILLER = 28 * 1024 * 1024 };

static inline char *map_pages(size_t bytes, int protection) {
    char *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

// Pushes everything else out of the smallest budget that the tests use (16 MiB).
static inline void chill(void) {
    if (!filler) filler = map_pages(FILLER, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < FILLER; i += PAGE) filler[i]++;
}

// Room for `bytes` in a state; what is behind it is far from other rooms. Not yet cold: see `settle`.
static inline void *room(enum state state, size_t bytes) {
    static char *closed;
    if (!far_room) {
        far_room = malloc(FAR_ROOM);
        closed = map_pages(16 * PAGE, PROT_READ | PROT_WRITE);
        memset(closed, 1, 16 * PAGE);
        MUST(mprotect(closed, 16 * PAGE, PROT_NONE) == 0);
    }
    char *aligned = far_room + (PAGE - (uintptr_t)far_room % PAGE);
    switch (state) {
    case NEAR: return near_room;
    case STRADDLING: return aligned + PAGE - (bytes > 8 ? 8 : bytes / 2);
    case PROTECTED: return closed;
    case WILD: return (void *)0x1000;
    default: return aligned + 128 * 1024;
    }
}

// The last thing before a call: what is to be cold is; of what straddles, the first page is touched again.
static inline void settle(enum state state, void *at) {
    if (state == COLD || state == STRADDLING) chill();
    if (state == STRADDLING) (void)*(volatile char *)at;
}
