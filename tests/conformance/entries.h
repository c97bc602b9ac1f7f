// System calls as a table: each is made with one pointer into memory of every state, and must answer the same and leave the
// same bytes behind. The table of the runtime's calls is compared with these (`table/exercised.rs`).
#pragma once
#include "far.h"
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
};

static long call(const struct entry *entry, void *at) {
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = entry->arguments[i] == P ? (long)at : entry->arguments[i];
    if (entry->before) entry->before();
    errno = 0;
    return syscall(entry->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// Whether an answer is the one that plain memory gave, whose bytes are at `expected`.
static int is_same(const struct entry *entry, long answer, long near_answer, const void *at, const void *expected) {
    if (entry->kind == SAME) return answer == near_answer && !memcmp(expected, at, entry->size);
    return (answer < 0) == (near_answer < 0);
}

// Room with what the call is to find there.
static char *filled(const struct entry *entry, enum state state) {
    char *at = room(state, entry->size);
    memset(at, 0, entry->size);
    return memcpy(at, entry->in ? entry->in : "", entry->in_size);
}

// What is cold and what straddles becomes cold at once: that takes most of the time.
static char *ready(const struct entry *entry, enum state state) {
    if (state >= PROTECTED) return room(state, entry->size);
    if (state == STRADDLING) {
        char *at = room(state, entry->size);
        (void)*(volatile char *)at;
        return at;
    }
    if (state == COLD) filled(entry, STRADDLING);
    char *at = filled(entry, state);
    if (state == COLD) chill();
    return at;
}

static void run(const struct entry *entry) {
    static char expected[16 * 1024];
    long near_answer = 0;
    int near_error = 0, shown = entry->kind != PRIVATE;
    printf("%s:", entry->name);
    for (enum state state = NEAR; state < STATES; state++) {
        char *at = ready(entry, state);
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

#define CALL_OF(which, ...) .name = #which, .number = SYS_##which, .arguments = {__VA_ARGS__}
#define IN(...) .in = &(__VA_ARGS__), .in_size = sizeof(__VA_ARGS__), .size = sizeof(__VA_ARGS__)
#define TEXT(text) .in = text, .in_size = sizeof text, .size = sizeof text
