/* What happens to single pages: locked, dropped, zero, read again and again; in a budget of 16 MiB.
 * usage: pages lock|drop|zeros|clean */
#define _GNU_SOURCE
#include "pattern.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static const uint64_t MEBIBYTES = 48;

static void say(const char *what, int result) {
    printf("%s %s\n", what, result == 0 ? "ok" : strerrorname_np(errno));
}

/* madvise(2) by the instruction itself. */
static long raw_madvise(void *from, unsigned long bytes, long advice) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_madvise), "D"(from), "S"(bytes), "d"(advice) : "rcx", "r11", "memory");
    return result;
}

static void drop(uint64_t *memory) {
    const uint64_t pages = 16;
    fill(memory, pages, 2); /* so that they are local */
    printf("dropped %ld\n", raw_madvise(memory, pages * 4096, MADV_DONTNEED));
    for (uint64_t word = 0; word < pages * PAGE_WORDS; word++)
        if (memory[word]) {
            printf("WRONG word %llu\n", (unsigned long long)word);
            exit(99);
        }
    for (uint64_t page = pages; page < 64; page++)
        if (memory[page * PAGE_WORDS] != pattern_word(page, 0, 1)) {
            printf("WRONG page %llu beside\n", (unsigned long long)page);
            exit(99);
        }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "zeros")) {
        uint64_t *memory = malloc(MEBIBYTES << 20);
        for (int round = 0; round < 2; round++) {
            memset(memory, 0, MEBIBYTES << 20);
            for (uint64_t word = 0; word < MEBIBYTES * 256 * PAGE_WORDS; word++)
                if (memory[word]) return 99;
        }
        puts("zeros");
        return 0;
    }
    uint64_t *memory = patterned(MEBIBYTES, 1);
    if (!strcmp(what, "lock")) {
        say("half", mlock(memory, 4 << 20));
        say("unlock", munlock(memory, 4 << 20));
        say("most", mlock(memory, 12 << 20));
        say("all", mlockall(MCL_CURRENT));
    }
    if (!strcmp(what, "drop")) drop(memory);
    for (int round = 0; round < 4 && !strcmp(what, "clean"); round++) verify(memory, MEBIBYTES * 256, 1, "again");
    puts("done");
    return 0;
}
