/* A process that may open no more files forks: its child's far memory cannot be served. The parent goes on. */
#define _GNU_SOURCE
#include "pattern.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEBIBYTES = 40 };

int main(void) {
    uint64_t *memory = patterned(MEBIBYTES, 1);
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NOFILE, &none)) return 98;
    pid_t child = fork();
    if (child < 0) return 97;
    if (child == 0) {
        /* Not reached, unless its memory is served all the same. */
        verify(memory, MEBIBYTES * 256, 1, "child");
        _exit(5);
    }
    int status;
    if (waitpid(child, &status, 0) != child) return 96;
    verify(memory, MEBIBYTES * 256, 1, "parent");
    printf("child: exited %d code %d\n", WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : 0);
    return 0;
}
