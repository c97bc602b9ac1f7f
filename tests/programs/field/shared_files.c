/* A child that is to share its parent's table of descriptors, but not its memory. usage: shared_files clone|clone3 */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t mebibytes = 32;
static uint64_t *memory;
static int given;

static int in_child(void *unused) {
    (void)unused;
    verify(memory, mebibytes * 256, 1, "child");
    fill(memory, mebibytes * 256, 2);
    verify(memory, mebibytes * 256, 2, "child's own");
    if (dup2(given, 500) != 500 || close(given)) _exit(4);
    _exit(0);
}

int main(int count, char **words) {
    unsigned long arguments[8] = {CLONE_FILES, 0, 0, 0, SIGCHLD, 0, 0, 0};
    memory = patterned(mebibytes, 1);
    given = open("/dev/zero", O_RDONLY);
    pid_t pid;
    if (count > 1 && !strcmp(words[1], "clone")) {
        char *stack = (char *)malloc(1 << 18) + (1 << 18);
        pid = clone(in_child, stack, CLONE_FILES | SIGCHLD, NULL);
    } else {
        pid = (pid_t)syscall(SYS_clone3, arguments, sizeof arguments);
        if (pid == 0) in_child(NULL);
    }
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 97;
    verify(memory, mebibytes * 256, 1, "parent");
    int opened = fcntl(500, F_GETFD) >= 0, closed = fcntl(given, F_GETFD) < 0;
    printf("child %#x; what it opened is %s, what it closed is %s\n", status, opened ? "open" : "closed", closed ? "closed" : "open");
    return 0;
}
