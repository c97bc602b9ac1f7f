/* A process that may open no more files forks, and nobody could see it coming: the limit was set by an instruction of its own. Its
 * child's far memory cannot be served. The parent goes on. */
#define _GNU_SOURCE
#include "pattern.h"
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEBIBYTES = 40 };

int main(void) {
    uint64_t *memory = patterned(MEBIBYTES, 1);
    struct rlimit none = {0, 0};
    register long old __asm__("r10") = 0;
    long refused = SYS_prlimit64;
    __asm__ volatile("syscall" : "+a"(refused) : "D"(0L), "S"((long)RLIMIT_NOFILE), "d"(&none), "r"(old) : "rcx", "r11", "memory");
    if (refused) return 98;
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
