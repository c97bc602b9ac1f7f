/* Grows to MEBIBYTES, a mebibyte at a time, each with a pattern of its own. Says "half" when it has half of them, and goes on when there is
 * a file "go" in the working directory. Verifies every byte at the end.
 * usage: grow MEBIBYTES */
#include "pattern.h"
#include <unistd.h>

int main(int argc, char **argv) {
    uint64_t count = strtoull(argc > 1 ? argv[1] : "64", NULL, 10);
    uint64_t **blocks = malloc(count * sizeof *blocks);
    if (!blocks) return 98;
    for (uint64_t block = 0; block < count; block++) {
        if (block == count / 2) {
            puts("half");
            fflush(stdout);
            while (access("go", F_OK) != 0) usleep(10000);
        }
        blocks[block] = patterned(1, block);
    }
    for (uint64_t block = 0; block < count; block++) verify(blocks[block], 256, block, "at the end");
    puts("done");
    return 0;
}
