// Pages that are read in any order, of which some are copies of a file's and the others private memory (xDM's figure 8).
//
// usage: mapped MIB PERCENT FILE [ROUNDS]      (PERCENT of the pages are of FILE; 3 rounds of as many reads as there are pages)
//        mapped --make MIB PERCENT FILE        writes FILE
// Output: a sum of what was read, the same for every PERCENT.
#include "common.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

constexpr size_t WORDS = 512;

static uint64_t word(size_t page, size_t at) { return at < WORDS / 2 ? scattered(page * WORDS + at + 1) : page; }

struct Pages {
    size_t count, percent;

    // Pages of the file before this one.
    size_t of_file(size_t page) const { return page * percent / 100; }
    bool is_of_file(size_t page) const { return of_file(page + 1) > of_file(page); }
};

static uint64_t *mapped(size_t pages, int flags, int file) {
    void *room = mmap(nullptr, pages * WORDS * 8, PROT_READ | (file < 0 ? PROT_WRITE : 0), MAP_PRIVATE | flags, file, 0);
    if (room == MAP_FAILED) perror("mapped"), exit(1);
    return static_cast<uint64_t *>(room);
}

static void fill(uint64_t *room, size_t page) {
    for (size_t at = 0; at < WORDS; at++) room[at] = word(page, at);
}

static int make(const Pages &pages, const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file) return perror(path), 1;
    std::vector<uint64_t> room(WORDS);
    for (size_t page = 0; page < pages.count; page++) {
        if (!pages.is_of_file(page)) continue;
        fill(room.data(), page);
        if (fwrite(room.data(), 8, WORDS, file) != WORDS) return perror(path), 1;
    }
    return fclose(file) ? perror(path), 1 : 0;
}

int main(int argc, char **argv) {
    const bool makes = argc == 5 && strcmp(argv[1], "--make") == 0;
    if (makes) argv++, argc--;
    const Pages pages{argc > 3 ? strtoull(argv[1], nullptr, 10) * 256 : 0, argc > 3 ? strtoull(argv[2], nullptr, 10) : 0};
    if (!pages.count || pages.percent > 100) return fprintf(stderr, "usage: mapped [--make] MIB PERCENT FILE [ROUNDS]\n"), 2;
    if (makes) return make(pages, argv[3]);
    const uint64_t rounds = argc > 4 ? strtoull(argv[4], nullptr, 10) : 3;
    const size_t of_file = pages.of_file(pages.count);
    const uint64_t *copies = nullptr;
    uint64_t *own = of_file < pages.count ? mapped(pages.count - of_file, MAP_ANONYMOUS, -1) : nullptr;
    if (of_file) {
        const int file = open(argv[3], O_RDONLY);
        if (file < 0) return perror(argv[3]), 1;
        copies = mapped(of_file, 0, file);
        // Page by page, as the others come.
        madvise(const_cast<uint64_t *>(copies), of_file * WORDS * 8, MADV_RANDOM);
    }
    for (size_t page = 0; page < pages.count; page++)
        if (!pages.is_of_file(page)) fill(own + (page - pages.of_file(page)) * WORDS, page);
    uint64_t sum = 0;
    for (uint64_t read = 0; read < rounds * pages.count; read++) {
        const size_t page = next() % pages.count, before = pages.of_file(page);
        const uint64_t *room = pages.is_of_file(page) ? copies + before * WORDS : own + (page - before) * WORDS;
        for (int turn = 0; turn < 8; turn++) sum += room[next() % WORDS];
    }
    printf("sum %016llx\n", (unsigned long long)sum);
}
