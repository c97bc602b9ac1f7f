/* What a program says to Hinterland while it runs: which part of it is to be recorded or to follow its tape, and, by hints, what use it will
 * make of its memory. A program that is built with this header needs no library of Hinterland's: where it runs without Hinterland, each call
 * evaluates its arguments, does nothing and returns 0.
 *
 *     cc $(pkg-config --cflags hinterland) fft.c
 *
 *     hinterland_begin(HINTERLAND_AUTO);
 *     double *data = malloc(bytes);
 *     transform(data);
 *     hinterland_end();
 */
#ifndef HINTERLAND_H
#define HINTERLAND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is to be done in an interval, and what hinterland_begin() says is done. */
enum {
    /* Nothing. */
    HINTERLAND_NONE = 0,
    /* References are recorded if the run records (hinterland trace); no tape is followed. */
    HINTERLAND_RECORD = 1,
    /* The tape is followed if the run has one (hinterland run --tape); nothing is recorded. */
    HINTERLAND_PREFETCH = 2,
    /* Whichever of both the run does. */
    HINTERLAND_AUTO = 3
};

/* Without noplt, code that is not position-independent would be linked with the address 0. */
#if defined(__has_attribute)
#if __has_attribute(noplt)
#define HINTERLAND_OPTIONAL __attribute__((weak, noplt))
#endif
#endif
#ifndef HINTERLAND_OPTIONAL
#define HINTERLAND_OPTIONAL __attribute__((weak))
#endif

/* The functions are called through others, which evaluate their arguments in any case. The runtime knows a place in the program by its return
 * address: so these are inlined always. They are not static: inline functions of the program's may call them, and those of C none that is. */
#define HINTERLAND_INLINE extern __inline__ __attribute__((gnu_inline, always_inline))

/* Begins an interval of the process. Before the first one, between them and after the last one nothing is recorded and no tape is followed;
 * pages that were allocated there (touched for the first time since they were mapped) are not recorded in an interval either. So begin it
 * before memory is allocated. An interval inside another one changes nothing.
 *
 * Returns what is done in the outermost one, or -1 with errno EINVAL where there is no such mode. */
extern int hinterland_begin(int mode) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE int hinterland_begin_if_there(int mode) {
    return hinterland_begin ? hinterland_begin(mode) : HINTERLAND_NONE;
}
#define hinterland_begin(mode) hinterland_begin_if_there(mode)

/* Ends the interval that began last. Returns 0, or -1 with errno EINVAL where there is none. */
extern int hinterland_end(void) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE int hinterland_end_if_there(void) {
    return hinterland_end ? hinterland_end() : 0;
}
#define hinterland_end() hinterland_end_if_there()

/* Hints. None can fault, fail, or wait for far memory, and none but hinterland_overwrite() can change what a program computes. Addresses that are not far, not mapped, freed or nonsense,
 * and lengths of any size, have no effect. Any thread may give them at any moment, also in a signal handler. */

/* Begins to fetch what is far of the range, and returns at once. */
extern void hinterland_fetch(const void *address, size_t length) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_fetch_if_there(const void *address, size_t length) {
    if (hinterland_fetch) hinterland_fetch(address, length);
}
#define hinterland_fetch(address, length) hinterland_fetch_if_there(address, length)

/* The same of the `length` bytes at each of the addresses, as one batch. The array itself is read. */
extern void hinterland_fetchv(const void *const *addresses, size_t count, size_t length) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_fetchv_if_there(const void *const *addresses, size_t count, size_t length) {
    if (hinterland_fetchv) hinterland_fetchv(addresses, count, length);
}
#define hinterland_fetchv(addresses, count, length) hinterland_fetchv_if_there(addresses, count, length)

/* Pages wholly inside the range leave, before any others: as soon as the evictor comes to it. */
extern void hinterland_evict(const void *address, size_t length) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_evict_if_there(const void *address, size_t length) {
    if (hinterland_evict) hinterland_evict(address, length);
}
#define hinterland_evict(address, length) hinterland_evict_if_there(address, length)

/* The same when frames are needed. */
extern void hinterland_evict_soon(const void *address, size_t length) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_evict_soon_if_there(const void *address, size_t length) {
    if (hinterland_evict_soon) hinterland_evict_soon(address, length);
}
#define hinterland_evict_soon(address, length) hinterland_evict_soon_if_there(address, length)

/* Pages of the range that are local, or come to be, stay so until they are released as often: a quarter of the budget at most; beyond that there
 * is no effect. A child of a fork keeps nothing; what is unmapped is forgotten. */
extern void hinterland_keep(const void *address, size_t length) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_keep_if_there(const void *address, size_t length) {
    if (hinterland_keep) hinterland_keep(address, length);
}
#define hinterland_keep(address, length) hinterland_keep_if_there(address, length)

/* Takes hinterland_keep() back. */
extern void hinterland_release(const void *address, size_t length) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_release_if_there(const void *address, size_t length) {
    if (hinterland_release) hinterland_release(address, length);
}
#define hinterland_release(address, length) hinterland_release_if_there(address, length)

/* A promise: the calling thread will write every byte of the pages that lie wholly inside the range before anything reads them. So what is far
 * of them is not fetched when the thread begins to write: until it has written the whole page, the rest of it reads as zero. Nothing changes
 * before that first write, and the promise is taken back, page by page, where anything comes first: a read, also by a system call; another
 * thread, or a child of a fork; any fork; the end of the thread. An instruction that reads and writes (`x++`, an atomic addition) is a write,
 * and finds zero. A promise that is not kept loses what the page held. Other threads must not use the page until it is written. */
extern void hinterland_overwrite(void *address, size_t length) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_overwrite_if_there(void *address, size_t length) {
    if (hinterland_overwrite) hinterland_overwrite(address, length);
}
#define hinterland_overwrite(address, length) hinterland_overwrite_if_there(address, length)

/* A phase of the program begins, with a number of its own choice. Phases are counted. */
extern void hinterland_phase(unsigned id) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE void hinterland_phase_if_there(unsigned id) {
    if (hinterland_phase) hinterland_phase(id);
}
#define hinterland_phase(id) hinterland_phase_if_there(id)

/* For compiled code: a loop that fetches ahead has one, static; state is zero. */
struct hinterland_loop {
    /* "function file:line:column"; at most 127 bytes of it are shown. */
    const char *name;
    /* The runtime's. */
    uint64_t state[7];
    /* 1: all that it walks goes in steps, which a prefetcher may follow; else 0. The other bits are the runtime's. */
    uint64_t walk;
};

/* For compiled code: constant, and lives as long as the process. */
struct hinterland_hints {
    /* 1, and the size of this structure: in a library that is older than this header the last functions may be missing. */
    uint32_t version, bytes;
    /* The functions above. */
    void (*fetch)(const void *address, size_t length);
    void (*fetchv)(const void *const *addresses, size_t count, size_t length);
    void (*evict)(const void *address, size_t length);
    void (*evict_soon)(const void *address, size_t length);
    void (*keep)(const void *address, size_t length);
    void (*release)(const void *address, size_t length);
    void (*overwrite)(void *address, size_t length);
    void (*phase)(unsigned id);
    /* Asked at the entry of a loop that will touch `length` bytes from `address` on, in about `iterations` iterations: once for each array that
     * it walks. `length` 0: where it will be is not known. Returns how many iterations ahead the hinted body is to fetch: a round trip, as
     * measured, at the loop's own pace, at least 1; or 0: the plain body will do, because nothing of the range is far, the prefetcher follows the
     * walk, or hardly anything was far before. */
    uint64_t (*loop_begin)(struct hinterland_loop *loop, const void *address, uint64_t length, uint64_t iterations);
    /* After a hinted body: its pace is measured, and what its hints were worth. 0 iterations: it was left in the first one, or had no hints. */
    void (*loop_end)(struct hinterland_loop *loop, uint64_t iterations);
    void (*loop_fetch)(struct hinterland_loop *loop, const void *address, size_t length);
    void (*loop_fetchv)(struct hinterland_loop *loop, const void *const *addresses, size_t count, size_t length);
    void (*loop_evict)(struct hinterland_loop *loop, const void *address, size_t length, int soon);
    /* Instead of loop_begin at the entry of a loop that may end early, which is to ask for a part of its iterations at a time: for the first part,
     * as there, and for `all_length` bytes from `all` on in `all_iterations`, which it will touch if it goes on to its end. Returns what loop_begin
     * would for the first part, or UINT64_MAX: for that it would be 0, and not for all. Then the hinted body is to fetch nothing until it asks
     * again, by loop_begin. */
    uint64_t (*loop_search)(struct hinterland_loop *loop, const void *address, uint64_t length, uint64_t iterations, const void *all,
                            uint64_t all_length, uint64_t all_iterations);
};

/* The table of a version; a null pointer where the runtime does not know it, or where there is none. */
extern const struct hinterland_hints *hinterland_hints(uint32_t version) HINTERLAND_OPTIONAL;
HINTERLAND_INLINE const struct hinterland_hints *hinterland_hints_if_there(uint32_t version) {
    return hinterland_hints ? hinterland_hints(version) : (const struct hinterland_hints *)0;
}
#define hinterland_hints(version) hinterland_hints_if_there(version)

#ifdef __cplusplus
}
#endif

#endif
