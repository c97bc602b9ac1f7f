/* Forks children that end at once, and changes all memory after each.
 * usage: leavers MEBIBYTES ROUNDS */
#include "pattern.h"
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    uint64_t mebibytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 32;
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 4;
    uint64_t *memory = patterned(mebibytes, 0);
    for (uint64_t round = 1; round <= rounds; round++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            perror("a child");
            return 1;
        }
        fill(memory, mebibytes * 256, round);
        verify(memory, mebibytes * 256, round, "a round");
    }
    puts("done");
    return 0;
}
