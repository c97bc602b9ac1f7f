/* Fills and verifies memory.
 * usage: hold MEBIBYTES [stay [USER [exec]]]     with `stay`, verifies again and again after it has said "ready"; as USER,
 *                                                which it becomes at its start; with `exec`, in the program that it executes then */
#include "pattern.h"
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 3 && (setgid(atoi(argv[3])) || setuid(atoi(argv[3])))) return 1;
    if (argc > 4) return execl("/proc/self/exe", argv[0], argv[1], argv[2], NULL);
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
