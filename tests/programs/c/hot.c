/* Fills memory, works in a part of it until there is a file "enough", then verifies all of it.
 * usage: hot MEBIBYTES HOT_MEBIBYTES */
#include "pattern.h"
#include <unistd.h>

int main(int argc, char **argv) {
    uint64_t mebibytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 64;
    uint64_t hot = argc > 2 ? strtoull(argv[2], NULL, 10) : mebibytes / 4;
    uint64_t *memory = patterned(mebibytes, 1);
    puts("ready");
    fflush(stdout);
    do verify(memory, hot * 256, 1, "hot part");
    while (access("enough", F_OK) != 0);
    verify(memory, mebibytes * 256, 1, "all of it");
    puts("done");
    return 0;
}
