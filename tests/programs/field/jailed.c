/* A server that shuts itself in: memory first, then another root directory, no rights, no dumps; then it fills its memory, and a child
 * changes its copy of it. What is forbidden to somebody without rights is printed, too. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, int result) { printf("%s %s\n", what, result ? strerror(errno) : "done"); }

int main(void) {
    const uint64_t mebibytes = 48;
    uint64_t *memory = malloc(mebibytes << 20);
    setvbuf(stdout, NULL, _IONBF, 0);
    say("chroot", chroot("."));
    say("group", setresgid(65534, 65534, 65534));
    say("user", setresuid(65534, 65534, 65534));
    say("dumpable", prctl(PR_SET_DUMPABLE, 0));
    fill(memory, mebibytes * 256, 1);
    verify(memory, mebibytes * 256, 1, "filled");
    if (fork() == 0) {
        verify(memory, mebibytes * 256, 1, "child");
        fill(memory, mebibytes * 256, 2);
        verify(memory, mebibytes * 256, 2, "child's own");
        _exit(0);
    }
    int status = -1;
    wait(&status);
    verify(memory, mebibytes * 256, 1, "after");
    printf("child %#x\n", status);
    return 0;
}
