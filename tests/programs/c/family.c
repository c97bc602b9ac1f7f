/* A process and its children, which read and rewrite what they inherit, all at the same time. Each says when it is done, and
 * keeps what it has until there is a file "enough" in the working directory.
 * usage: family MEBIBYTES CHILDREN */
#define _GNU_SOURCE
#include "pattern.h"
#include <sys/wait.h>
#include <unistd.h>

static void rest(void) {
    printf("resting\n");
    fflush(stdout);
    while (access("enough", F_OK) != 0) usleep(10000);
}

int main(int argc, char **argv) {
    uint64_t half = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) / 2;
    int children = argc > 2 ? atoi(argv[2]) : 3, good = 0;
    uint64_t pages = half * 256, *kept = patterned(half, 1), *changed = patterned(half, 2);
    for (int child = 0; child < children; child++)
        if (fork() == 0) {
            for (int round = 0; round < 3; round++) {
                verify(kept, pages, round ? 10 + child + round : 1, "child");
                verify(changed, pages, 2, "child's other half");
                fill(kept, pages, 11 + child + round);
            }
            rest();
            _exit(0);
        }
    for (int round = 0; round < 4; round++) {
        fill(changed, pages, 3 + round);
        verify(changed, pages, 3 + round, "parent");
    }
    rest();
    for (int status; wait(&status) > 0;) good += status == 0;
    verify(kept, pages, 1, "parent's other half");
    printf("%d of %d children right\n", good, children);
    return 0;
}
