/* Preloaded, stands in for Hinterland: a table of hints that notes what compiled code asks for, and whether it is true.
 *
 * Pages of a watched object are not accessible before their first touch, and not after an eviction: so each touch that comes before
 * its fetch, and each one of a page that was given up, is seen. With HINTED_TOTAL it says at the end how many questions loops have asked.
 * HINTED_DISTANCE is what loop_begin and loop_search answer: one number after the other, each until a loop says that it ends, and then the first
 * again; `later`: nothing is far but what comes later in a search. With HINTED_FAR=FROM-TO these pages alone of the first watched object are far, if
 * they are among those of a range that it looks at: 64 that exist, evenly spread, as in the runtime. With HINTED_OLDER there is no loop_search.
 * What is kept must be released before the program ends, and nothing else may be. */
#define _GNU_SOURCE
#include "recorder.h"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES_MAX 65536
#define OBJECTS_MAX 8
#define KEPT_MAX 64

static struct object {
    const char *name;
    uintptr_t begin, end;
    unsigned pages, fetched_before, late, outside, evicted, again;
    unsigned char fetched[PAGES_MAX], touched[PAGES_MAX], left[PAGES_MAX];
} objects[OBJECTS_MAX];
static unsigned count, strayed, begins, ends, promised, elsewhere; /* elsewhere: pages evicted while nothing is watched */

static struct object *object_of(uintptr_t address) {
    for (unsigned i = 0; i < count; i++)
        if (address >= objects[i].begin && address < objects[i].end) return &objects[i];
    return NULL;
}

static void touch(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    uintptr_t address = (uintptr_t)info->si_addr;
    struct object *object = object_of(address);
    if (!object) { /* the program's own mistake */
        signal(SIGSEGV, SIG_DFL);
        return;
    }
    size_t page = (address - object->begin) / PAGE;
    if (object->left[page]) object->again++;
    else if (!object->touched[page]) {
        object->touched[page] = 1;
        object->pages++;
        if (object->fetched[page]) object->fetched_before++;
        else object->late++;
    }
    object->left[page] = 0;
    mprotect((void *)(object->begin + page * PAGE), PAGE, PROT_READ | PROT_WRITE);
}

void recorder_watch(const char *name, void *address, size_t bytes) {
    struct object *object = &objects[count++];
    memset(object, 0, sizeof *object);
    object->name = name;
    object->begin = (uintptr_t)address;
    object->end = object->begin + bytes;
    if (count > OBJECTS_MAX || object->begin % PAGE || bytes % PAGE || bytes / PAGE > PAGES_MAX) abort();
    struct sigaction action = {.sa_sigaction = touch, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    mprotect(address, bytes, PROT_NONE);
}

void recorder_report(void) {
    for (unsigned i = 0; i < count; i++) {
        struct object *object = &objects[i];
        mprotect((void *)object->begin, object->end - object->begin, PROT_READ | PROT_WRITE);
        unsigned fetched = 0;
        for (size_t page = 0; page < PAGES_MAX; page++) fetched += object->fetched[page];
        fprintf(stderr, "%s touched %u ahead %u late %u evicted %u again %u fetched %u\n", object->name, object->pages, object->fetched_before,
                object->late, object->evicted, object->again, fetched);
    }
    fprintf(stderr, "strayed %u begins %u ends %u promised %u\n", strayed, begins, ends, promised);
    count = strayed = begins = ends = promised = elsewhere = 0;
}

void recorder_evicted(const char *kernel) {
    fprintf(stderr, "%s evicted %u\n", kernel, elsewhere);
    elsewhere = 0;
}

struct hinterland_loop {
    const char *name;
    uint64_t state[8];
};

static void fetch(struct hinterland_loop *loop, const void *address, size_t bytes) {
    (void)loop;
    uintptr_t begin = (uintptr_t)address, end = begin + bytes;
    if (!bytes || !count || !address) return; /* null: a chain's end */
    struct object *object = object_of(begin);
    /* A range is inside one object. */
    if (!object || end > object->end) {
        strayed++;
        return;
    }
    for (uintptr_t page = begin / PAGE; page <= (end - 1) / PAGE; page++) object->fetched[page - object->begin / PAGE] = 1;
}

static void fetchv(struct hinterland_loop *loop, const void *const *addresses, size_t number, size_t bytes) {
    for (size_t i = 0; i < number; i++) fetch(loop, addresses[i], bytes);
}

static void evict(struct hinterland_loop *loop, const void *address, size_t bytes, int soon) {
    (void)loop, (void)soon;
    uintptr_t begin = ((uintptr_t)address + PAGE - 1) / PAGE * PAGE, end = ((uintptr_t)address + bytes) / PAGE * PAGE;
    if (begin >= end) return;
    if (!count) {
        elsewhere += (end - begin) / PAGE;
        return;
    }
    struct object *object = object_of(begin);
    if (!object || end > object->end) {
        strayed++;
        return;
    }
    memset(object->left + (begin - object->begin) / PAGE, 1, (end - begin) / PAGE);
    object->evicted += (end - begin) / PAGE;
    mprotect((void *)begin, end - begin, PROT_NONE);
}

static struct range {
    uintptr_t address;
    size_t bytes;
} kept[KEPT_MAX], were_kept[KEPT_MAX]; /* now, and since that was last written */
static unsigned kept_now, keeps;

static void keep(const void *address, size_t bytes) {
    if (!bytes) return;
    if (kept_now == KEPT_MAX) abort();
    kept[kept_now++] = were_kept[keeps++ % KEPT_MAX] = (struct range){(uintptr_t)address, bytes};
}

static void release(const void *address, size_t bytes) {
    if (!bytes) return;
    unsigned at = 0;
    while (at < kept_now && (kept[at].address != (uintptr_t)address || kept[at].bytes != bytes)) at++;
    if (at == kept_now) abort();
    kept[at] = kept[--kept_now];
}

void recorder_kept(const char *kernel, const void *object, size_t bytes) {
    unsigned whole = 0;
    for (unsigned i = 0; i < keeps && i < KEPT_MAX; i++) whole += were_kept[i].address == (uintptr_t)object && were_kept[i].bytes == bytes;
    fprintf(stderr, "%s keeps %u whole %u left %u\n", kernel, keeps, whole, kept_now);
    keeps = 0;
}

/* The worst that a promise allows: what is there is gone at once. */
static void overwrite(void *address, size_t bytes) {
    uintptr_t begin = ((uintptr_t)address + PAGE - 1) / PAGE * PAGE, end = ((uintptr_t)address + bytes) / PAGE * PAGE;
    if (begin >= end || object_of(begin)) return;
    memset((void *)begin, 0xa5, end - begin);
    promised += (end - begin) / PAGE;
}

/* Whether one of the pages that are far is found in a range; nothing is known of a range without a length. */
static int has_far(uintptr_t address, uint64_t bytes) {
    const char *far = getenv("HINTED_FAR"), *to = far ? strchr(far, '-') : NULL;
    if (!to || !bytes || !count) return 1;
    uintptr_t begin = objects[0].begin / PAGE + strtoul(far, NULL, 10), end = objects[0].begin / PAGE + strtoul(to + 1, NULL, 10);
    uintptr_t first = address / PAGE, last = (address + bytes - 1) / PAGE, behind = objects[0].end / PAGE - 1;
    if (last > behind) last = behind;
    uintptr_t step = (last - first + 1) / 64;
    for (uintptr_t page = first; page <= last; page += step ? step : 1)
        if (page >= begin && page < end) return 1;
    return 0;
}

/* The distance whose turn it is. */
static const char *turn(void) {
    const char *distances = getenv("HINTED_DISTANCE"), *distance = distances;
    for (unsigned i = 0; distance && i < ends; i++) {
        distance = strchr(distance, ',');
        distance = distance ? distance + 1 : distances;
    }
    return distance ? distance : "0";
}

static void asked(const struct hinterland_loop *loop) {
    if (!loop->name || !strchr(loop->name, ':') || loop->state[0]) abort();
    begins++;
}

static uint64_t loop_begin(struct hinterland_loop *loop, const void *address, uint64_t bytes, uint64_t iterations) {
    (void)iterations;
    asked(loop);
    return has_far((uintptr_t)address, bytes) ? strtoull(turn(), NULL, 10) : 0;
}

static uint64_t loop_search(struct hinterland_loop *loop, const void *address, uint64_t bytes, uint64_t iterations, const void *all,
                            uint64_t all_bytes, uint64_t all_iterations) {
    (void)iterations, (void)all_iterations;
    asked(loop);
    const char *distance = turn();
    if (*distance == 'l') return UINT64_MAX;
    if (*distance == '0' || has_far((uintptr_t)address, bytes)) return strtoull(distance, NULL, 10);
    return has_far((uintptr_t)all, all_bytes) ? UINT64_MAX : 0;
}

static void loop_end(struct hinterland_loop *loop, uint64_t iterations) {
    (void)loop, (void)iterations;
    ends++;
}

__attribute__((destructor)) static void total(void) {
    if (getenv("HINTED_TOTAL")) fprintf(stderr, "begins %u\n", begins);
    if (kept_now) abort();
}

static void unused(void) { abort(); }

const void *hinterland_hints(uint32_t version) {
    static void (*const hints[14])(void) = {
        unused, unused, unused, unused, (void (*)(void))keep, (void (*)(void))release, (void (*)(void))overwrite, unused, (void (*)(void))loop_begin,
        (void (*)(void))loop_end, (void (*)(void))fetch, (void (*)(void))fetchv, (void (*)(void))evict, (void (*)(void))loop_search,
    };
    static struct {
        uint32_t version, bytes;
        void (*calls[14])(void);
    } table = {1, sizeof table, {0}};
    memcpy(table.calls, hints, sizeof hints);
    if (getenv("HINTED_OLDER")) table.bytes -= sizeof *table.calls, table.calls[13] = unused;
    return version == 1 ? &table : NULL;
}
