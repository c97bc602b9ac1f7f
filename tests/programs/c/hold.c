/* Fills and verifies memory.
 * usage: hold MEBIBYTES [stay]     with `stay`, verifies again and again after it has said "ready" */
#include "pattern.h"
#include <string.h>

int main(int argc, char **argv) {
    uint64_t mebibytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 64;
    uint64_t *memory = patterned(mebibytes, 1);
    verify(memory, mebibytes * 256, 1, "first pass");
    puts("ready");
    fflush(stdout);
    do verify(memory, mebibytes * 256, 1, "later pass");
    while (argc > 2 && strcmp(argv[2], "stay") == 0);
    puts("done");
    return 0;
}
