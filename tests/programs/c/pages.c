/* What happens to single pages: locked, dropped, zero, freed, read again and again; in a budget of 16 MiB.
 * usage: pages lock|drop|zeros|freed|lazily|clean|rounds
 *        pages objects BYTES    (fills 64 MiB with objects of so many bytes, and prints /proc/self/smaps) */
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

/* Objects of 72 KB come and go, four fifths of them each time; all that are there hold what was written to them. */
static void free_and_reuse(void) {
    enum { OBJECTS = 700, WORDS = 9000, KEPT = 5, ROUNDS = 5 };
    static uint64_t *objects[OBJECTS], seeds[OBJECTS];
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (int at = 0; at < OBJECTS; at++) {
            if (objects[at]) continue;
            objects[at] = malloc(WORDS * sizeof(uint64_t));
            seeds[at] = round << 32 | (uint64_t)at;
            for (int word = 0; word < WORDS; word++) objects[at][word] = seeds[at] * 0x9e3779b97f4a7c15 ^ (uint64_t)word * 0xff51afd7ed558ccd;
        }
        for (int at = 0; at < OBJECTS; at++) {
            for (int word = 0; word < WORDS; word++)
                if (objects[at][word] != (seeds[at] * 0x9e3779b97f4a7c15 ^ (uint64_t)word * 0xff51afd7ed558ccd)) {
                    printf("WRONG object %d in round %llu\n", at, (unsigned long long)round);
                    exit(99);
                }
            if (at % KEPT == (int)(round % KEPT)) continue;
            free(objects[at]);
            objects[at] = NULL;
        }
    }
}

/* How many pages that may be freed (MADV_FREE) while they are local read as zero at once; the others must hold what they held. */
static void free_lazily(void) {
    const uint64_t pages = 1024;
    uint64_t *block = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), zero = 0;
    fill(block, pages, 2);
    say("free", madvise(block, pages * 4096, MADV_FREE));
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t *start = block + page * PAGE_WORDS;
        if (start[1] == pattern_word(page, 1, 2)) continue;
        for (int word = 0; word < PAGE_WORDS; word++)
            if (start[word]) printf("WRONG %lx\n", start[word]);
        zero++;
    }
    printf("zero %lu\n", zero);
    fill(block, pages, 3);
    verify(block, pages, 3, "written again");
}

/* Nothing is freed, so that all of it is there when the kernel is asked. */
static int objects(size_t bytes) {
    for (size_t filled = 0; filled < 64 << 20; filled += bytes) memset(malloc(bytes), 1, bytes);
    char block[1 << 16];
    FILE *maps = fopen("/proc/self/smaps", "r");
    for (size_t n; (n = fread(block, 1, sizeof block, maps)) > 0;) fwrite(block, 1, n, stdout);
    return fclose(maps);
}

static size_t comparisons, resident_mebibytes;

/* The most anonymous memory of this process at a look: libc makes a copy of the array, and uses more of it with each step. */
static void look(void) {
    char line[200];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) {
        size_t now = strncmp(line, "RssAnon:", 8) ? 0 : strtoul(line + 8, NULL, 10) >> 10;
        if (now > resident_mebibytes) resident_mebibytes = now;
    }
    fclose(status);
}

static int by_value(const void *a, const void *b) {
    if (++comparisons % (1 << 16) == 0) look();
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static int sorted(void) {
    const size_t count = MEBIBYTES << 17;
    uint64_t *memory = malloc(count * sizeof *memory);
    for (size_t i = 0; i < count; i++) memory[i] = i / 512 * 7919 % (MEBIBYTES * 256);
    qsort(memory, count, sizeof *memory, by_value);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += memory[i] != i / 512;
    printf("resident %zu\nwrong %zu\n", resident_mebibytes, wrong);
    return 0;
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
    if (!strcmp(what, "sorted")) return sorted();
    if (!strcmp(what, "freed")) {
        free_and_reuse();
        puts("freed");
        return 0;
    }
    if (!strcmp(what, "objects")) return objects(strtoul(argv[2], NULL, 10));
    if (!strcmp(what, "rounds")) { /* through a little more than the budget */
        uint64_t *memory = patterned(18, 1);
        for (int round = 0; round < 40; round++) verify(memory, 18 * 256, 1, "again");
        puts("done");
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
    if (!strcmp(what, "lazily")) free_lazily();
    for (int round = 0; round < 4 && !strcmp(what, "clean"); round++) verify(memory, MEBIBYTES * 256, 1, "again");
    puts("done");
    return 0;
}
