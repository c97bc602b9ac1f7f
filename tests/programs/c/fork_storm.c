/* Thousands of children, some at a time: each reads and changes pages of its parent's memory, at random.
 * usage: fork_storm CHILDREN AT_A_TIME */
#define _GNU_SOURCE
#include "pattern.h"
#include <sys/wait.h>
#include <unistd.h>

enum { MEBIBYTES = 24, TOUCHES = 50 };

static void child(uint64_t *memory, uint64_t seed) {
    for (int touch = 0; touch < TOUCHES; touch++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t page = (seed >> 33) % (MEBIBYTES * 256), *words = memory + page * PAGE_WORDS;
        if (words[7] != pattern_word(page, 7, 1)) _exit(99);
        words[8] = seed;
    }
    _exit(0);
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 1000, most = argc > 2 ? atoi(argv[2]) : 8, live = 0, right = 0, status;
    uint64_t *memory = patterned(MEBIBYTES, 1);
    for (int number = 0; number < children; number++) {
        if (live == most && wait(&status) > 0) right += status == 0, live--;
        pid_t pid = fork();
        if (pid < 0) return 98;
        if (pid == 0) child(memory, number);
        live++;
    }
    while (wait(&status) > 0) right += status == 0;
    verify(memory, MEBIBYTES * 256, 1, "parent");
    printf("%d of %d children right\n", right, children);
    return 0;
}
