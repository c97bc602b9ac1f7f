/* Fills memory, then makes so many children: one after the other, which read a part of it and end; or all at once, which do nothing until all
 * are there, so that everything stays shared. For figures that must not grow with the number of forks. */
#include "pattern.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    uint64_t mebibytes = strtoull(arguments[1], NULL, 10);
    int children = count > 2 ? atoi(arguments[2]) : 0, at_once = count > 3;
    uint64_t *memory = patterned(mebibytes, 1);
    int hold[2];
    if (pipe(hold)) return 1;
    for (int child = 0; child < children; child++) {
        pid_t pid = fork();
        if (!pid) {
            char byte;
            close(hold[1]);
            if (at_once) return read(hold[0], &byte, 1) == 0 ? 0 : 2;
            verify(memory, 64, 1, "child");
            return 0;
        }
        if (!at_once) waitpid(pid, NULL, 0);
    }
    if (at_once) usleep(500000); /* for looks at all of them */
    close(hold[1]);
    while (wait(NULL) > 0) {}
    verify(memory, mebibytes * 256, 1, "parent");
    puts("figures ok");
    return 0;
}
