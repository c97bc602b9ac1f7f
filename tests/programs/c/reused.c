/* Which pages an allocation gets when others were freed before, some of them long ago.
 *
 * reused MILLISECONDS      waits so long between two calls of free(), and so long in all between small allocations
 *
 * Prints "ready", in which of the freed objects the new one lies, a sum of the places of small objects, and "done". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES ((size_t)12 << 20)

static char *filled(char with) {
    char *object = malloc(BYTES);
    if (!object) exit(1);
    memset(object, with, BYTES);
    return object;
}

static void wait_for(long microseconds) {
    nanosleep(&(struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000}, NULL);
}

/* Small objects of many sizes, half of which are freed; a sum of where they are. */
static uintptr_t small(long milliseconds) {
    enum { ROUNDS = 100, OBJECTS = 1000 };
    static void *objects[OBJECTS];
    uintptr_t sum = 0;
    unsigned state = 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (milliseconds) wait_for(milliseconds * 1000 / ROUNDS);
        for (int at = 0; at < OBJECTS; at++) {
            state = state * 1664525 + 1013904223;
            if (state >> 31) continue;
            free(objects[at]);
            if (!(objects[at] = malloc(16 + (state >> 8) % 2000))) exit(1);
            sum = sum * 31 + (uintptr_t)objects[at];
        }
    }
    return sum;
}

int main(int count, char **words) {
    if (count != 2) return 2;
    long milliseconds = atol(words[1]);
    char *first = filled(1), *between = malloc(1 << 20), *second = filled(2);
    puts("ready");
    free(first);
    wait_for(milliseconds * 1000);
    free(second);
    char *again = filled(3);
    puts(again == first ? "in the first" : again == second ? "in the second" : "elsewhere");
    for (size_t at = 0; at < BYTES; at += 4096)
        if (again[at] != 3) return 1;
    free(between);
    printf("small objects: %jx\n", (uintmax_t)small(milliseconds));
    puts("done");
    return 7;
}
