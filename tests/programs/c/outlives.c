/* Pages that are local, unchanged and stored outlive what they are stored on.
 * usage: outlives KEPT_MEBIBYTES OTHER_MEBIBYTES
 * Memory leaves and comes back, unchanged, and "local" is said; when there is a file "lost" in the working directory it leaves once more, comes back
 * and is verified. */
#include "pattern.h"
#include <sys/mman.h>
#include <unistd.h>

/* Needs all local memory for a moment. */
static void press(uint64_t mebibytes, uint64_t version) {
    uint64_t bytes = mebibytes << 20;
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(96);
    for (uint64_t word = 0; word < bytes / 8; word += 512) memory[word] = word + version;
    munmap(memory, bytes);
}

int main(int argc, char **argv) {
    uint64_t kept = argc > 1 ? strtoull(argv[1], NULL, 10) : 4;
    uint64_t other = argc > 2 ? strtoull(argv[2], NULL, 10) : 64;
    uint64_t *memory = patterned(kept, 1);
    press(other, 1);
    verify(memory, kept * 256, 1, "what came back");
    puts("local");
    fflush(stdout);
    while (access("lost", F_OK) != 0) {
        /* It stays in use. */
        verify(memory, kept * 256, 1, "what is local");
        usleep(10000);
    }
    press(other, 2);
    verify(memory, kept * 256, 1, "what outlived its copies");
    puts("done");
    return 0;
}
