// Shared by the conformance programs: what is printed must be the same natively and under Hinterland.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)

// Prints a value under the text of its expression.
#define SHOW(expression) printf("%s:%d %s = %lld\n", __FILE__, __LINE__, #expression, (long long)(expression))
// Prints a call's outcome: 'ok', or the error's name.
#define CALL(expression)                                                                         \
    ({                                                                                           \
        errno = 0;                                                                               \
        intptr_t rc_ = (intptr_t)(expression);                                                   \
        const char *outcome_ = rc_ == -1 ? strerrorname_np(errno) : "ok";                        \
        printf("%s:%d %s -> %s\n", __FILE__, __LINE__, #expression, outcome_);                   \
    })
// Ends the program when something must hold.
#define MUST(expression)                                                                         \
    ({                                                                                           \
        if (!(expression)) {                                                                     \
            printf("%s:%d FAILED %s (%s)\n", __FILE__, __LINE__, #expression, strerror(errno));  \
            fflush(stdout);                                                                      \
            _exit(1);                                                                            \
        }                                                                                        \
    })

// A sequence of numbers that depends on its seed only (SplitMix64).
static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Fills a range with a pattern of its own; every word depends on seed and offset.
static inline void fill(void *at, size_t bytes, uint64_t seed) {
    uint64_t *words = (uint64_t *)at;
    for (size_t i = 0; i < bytes / 8; i++) words[i] = mix(seed + i);
}

// How many words of a range do not hold the pattern.
static inline size_t wrong(const void *at, size_t bytes, uint64_t seed) {
    const uint64_t *words = (const uint64_t *)at;
    size_t n = 0;
    for (size_t i = 0; i < bytes / 8; i++) n += words[i] != mix(seed + i);
    return n;
}

// How many bytes of a range are not zero.
static inline size_t nonzero(const void *at, size_t bytes) {
    const unsigned char *p = (const unsigned char *)at;
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += p[i] != 0;
    return n;
}

static sigjmp_buf probe_return;
static void probe_caught(int number) { siglongjmp(probe_return, number); }

// Reads ('r') or writes ('w') or calls ('x') at an address; 0 if that works, else the signal.
static inline int probe(void *at, char how) {
    struct sigaction act = {0}, segv, bus;
    act.sa_handler = probe_caught;
    act.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &act, &segv);
    sigaction(SIGBUS, &act, &bus);
    int caught = sigsetjmp(probe_return, 1);
    if (!caught) {
        volatile unsigned char *p = (volatile unsigned char *)at;
        if (how == 'r') (void)*p;
        if (how == 'w') *p = *p;
        if (how == 'x') ((void (*)(void))at)();
    }
    sigaction(SIGSEGV, &segv, 0);
    sigaction(SIGBUS, &bus, 0);
    return caught;
}
