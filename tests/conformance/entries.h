// System calls as a table: each is made with one pointer into memory of every state, and must answer the same and leave the
// same bytes behind. The table of the runtime's calls is compared with these (`table/exercised.rs`).
#pragma once
#include "far.h"
#include <fcntl.h>
#include <sys/syscall.h>

#define P ((long)0x5050505050505050) // stands for the pointer
// What comes back: the same bytes; whatever; a descriptor; two of them in memory; what privileges decide (so it is not shown).
enum kind { SAME, ANY, FD, PAIR, PRIVATE };

struct entry {
    const char *name;
    long number;
    long arguments[6];
    size_t size;
    const void *in;
    size_t in_size;
    enum kind kind;
    void (*before)(void); // makes that the call has something to find
    void (*after)(void); // ends what that has begun
};

static long call(const struct entry *entry, void *at) {
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = entry->arguments[i] == P ? (long)at : entry->arguments[i];
    if (entry->before) entry->before();
    errno = 0;
    long answer = syscall(entry->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int error = errno;
    if (entry->after) entry->after();
    errno = error;
    return answer;
}

// Whether an answer is the one that plain memory gave, whose bytes are at `expected`.
static int is_same(const struct entry *entry, long answer, long near_answer, const void *at, const void *expected) {
    if (entry->kind == SAME) return answer == near_answer && !memcmp(expected, at, entry->size);
    return (answer < 0) == (near_answer < 0);
}

// Room with what the call is to find there.
static char *fill_room(const struct entry *entry, char *at) {
    memset(at, 0, entry->size);
    return memcpy(at, entry->in ? entry->in : "", entry->in_size);
}

// Rooms for so many entries become cold at once: that takes most of the time.
enum { BATCH = 16, BESIDE = 32 * 1024 };

static char *cold_room(size_t place, enum state state, size_t bytes) {
    static char *rooms;
    // In no order: nobody is to prefetch them.
    static const char order[BATCH] = {3, 12, 0, 9, 14, 5, 1, 10, 7, 15, 4, 8, 2, 13, 6, 11};
    if (!rooms) rooms = malloc(BATCH * 2 * BESIDE + PAGE);
    char *at = rooms + (PAGE - (uintptr_t)rooms % PAGE) + order[place] * 2 * BESIDE;
    return state == COLD ? at : at + BESIDE + PAGE - (bytes > 8 ? 8 : bytes / 2);
}

static char *ready(const struct entry *entry, size_t place, enum state state) {
    if (state >= PROTECTED) return room(state, entry->size);
    if (state < COLD) return fill_room(entry, room(state, entry->size));
    char *at = cold_room(place, state, entry->size);
    if (state == STRADDLING) (void)*(volatile char *)at;
    return at;
}

static void run(const struct entry *entry, size_t place) {
    static char expected[16 * 1024];
    long near_answer = 0;
    int near_error = 0, shown = entry->kind != PRIVATE;
    printf("%s:", entry->name);
    for (enum state state = NEAR; state < STATES; state++) {
        char *at = ready(entry, place, state);
        long answer = call(entry, at);
        int error = errno;
        if (state == NEAR) {
            memcpy(expected, at, entry->size);
            near_answer = answer, near_error = error;
            if (answer == -1 && shown) printf(" %s", strerrorname_np(error));
            else if (entry->kind == SAME) printf(" %ld", answer);
        } else if (state < PROTECTED) {
            int same = is_same(entry, answer, near_answer, at, expected) && error == near_error;
            printf(" %s", same ? "same" : answer < 0 ? strerrorname_np(error) : "DIFFERS");
        } else if (shown) {
            printf(" %s", answer < 0 ? strerrorname_np(error) : "no error");
        }
        if (answer >= 0 && entry->kind == FD) close(answer);
        if (answer >= 0 && entry->kind == PAIR) close(((int *)at)[0]), close(((int *)at)[1]);
    }
    printf("\n");
}

// How many of the first cold rooms have pages that are mapped: an eviction policy may hold on to what came back often.
static int near_rooms(size_t places) {
    static int pages = -1;
    if (pages < 0) MUST((pages = open("/proc/self/pagemap", O_RDONLY)) >= 0);
    int near = 0;
    for (size_t place = 0; place < places; place++)
        for (size_t page = 0; page < 2 * BESIDE; page += PAGE) {
            uint64_t entry = 0;
            char *at = cold_room(place, COLD, 1) + page;
            MUST(pread(pages, &entry, sizeof entry, (uintptr_t)at / PAGE * sizeof entry) == sizeof entry);
            near += entry >> 63;
        }
    return near;
}

// Runs them all, each after `before`.
static void run_entries(const struct entry *entries, size_t count, void (*before)(void)) {
    for (size_t first = 0; first < count; first += BATCH) {
        size_t here = count - first < BATCH ? count - first : BATCH;
        for (size_t i = 0; i < here; i++)
            for (enum state state = COLD; state <= STRADDLING; state++)
                fill_room(&entries[first + i], cold_room(i, state, entries[first + i].size));
        // Natively they stay where they are.
        for (int tries = 0; tries < 6 && near_rooms(here); tries++) chill();
        for (size_t i = 0; i < here; i++) before(), run(&entries[first + i], i);
    }
}

#define CALL_OF(which, ...) .name = #which, .number = SYS_##which, .arguments = {__VA_ARGS__}
#define IN(...) .in = &(__VA_ARGS__), .in_size = sizeof(__VA_ARGS__), .size = sizeof(__VA_ARGS__)
#define TEXT(text) .in = text, .in_size = sizeof text, .size = sizeof text
