// usage: switches MIB idle|busy     fills so many MiB, of which half of each page is random, and says "ready". Busy, it checks pages in a random order. For each line that it reads it says how many it has
// checked since the line before, in how many seconds, and the longest seconds of one; in the end it checks all.
#include "common.h"

#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

constexpr size_t WORDS = 512;
static uint64_t *memory;

static uint64_t word(size_t page, size_t at) {
    return at < WORDS / 2 ? (page * WORDS + at + 1) * 0x9e3779b97f4a7c15u : page;
}

static void check(size_t page, size_t at) {
    if (memory[page * WORDS + at] == word(page, at)) return;
    printf("WRONG: word %zu of page %zu\n", at, page);
    exit(1);
}

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t pages = strtoull(argv[1], nullptr, 10) * 256;
    bool busy = strcmp(argv[2], "busy") == 0;
    void *room = mmap(nullptr, pages * WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return 3;
    memory = static_cast<uint64_t *>(room);
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
    puts("ready");
    fflush(stdout);
    for (;;) {
        double begun = now(), longest = 0;
        size_t checked = 0;
        pollfd input = {STDIN_FILENO, POLLIN, 0};
        while (poll(&input, 1, busy ? 0 : -1) == 0)
            for (int turn = 0; turn < 16; turn++, checked++) {
                size_t page = next() % pages;
                double before = now();
                check(page, next() % WORDS);
                double took = now() - before;
                if (took > longest) longest = took;
            }
        char line[64];
        if (read(STDIN_FILENO, line, sizeof line) <= 0) break;
        printf("%zu %.6f %.6f\n", checked, now() - begun, longest);
        fflush(stdout);
    }
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++) check(page, at);
    puts("right");
}
