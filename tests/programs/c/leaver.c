/* Ends at once, and leaves a process that goes on.
 * usage: leaver fork|daemon SECONDS CODE */
#define _GNU_SOURCE
#include "pattern.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEBIBYTES = 48 };

int main(int argc, char **argv) {
    if (argc < 4) return 98;
    uint64_t *memory = malloc(MEBIBYTES << 20);
    fill(memory, MEBIBYTES * 256, 1);
    if (!strcmp(argv[1], "daemon")) {
        if (daemon(1, 1)) return 97;
    } else if (fork()) {
        _exit(atoi(argv[3]));
    }
    verify(memory, MEBIBYTES * 256, 1, "left");
    fill(memory, MEBIBYTES * 256, 2);
    usleep(atof(argv[2]) * 1e6);
    verify(memory, MEBIBYTES * 256, 2, "left");
    puts("the one that was left is right");
    fflush(stdout);
    _exit(77);
}
