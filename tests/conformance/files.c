// Programs that close or replace every descriptor go on, also in children.
#include "check.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
int closefrom_returns;

// Memory that must stay right while descriptors come and go.
static char *memory;
static const size_t bytes = 24 * MIB;

static void verify(const char *after) { printf("after %s: %zu wrong\n", after, wrong(memory, bytes, 1)); }

static int open_low(void) { return open("/dev/null", O_RDONLY); }

int main(void) {
    memory = malloc(bytes);
    fill(memory, bytes, 1);
    for (int fd = 3; fd < 20000; fd++) close(fd);
    verify("closing one by one");
    SHOW(open_low()), SHOW(open_low()), SHOW(dup(3));
    SHOW(close(4)), SHOW(close(4)), SHOW(errno == EBADF);
    SHOW(close_range(3, ~0u, 0));
    verify("close_range");
    SHOW(open_low()), SHOW(close_range(5, 4, 0)), SHOW(errno == EINVAL), SHOW(close_range(3, 3, 0)), SHOW(close(3));
    SHOW(open_low()), SHOW(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC)), SHOW(fcntl(3, F_GETFD) == FD_CLOEXEC);
    closefrom(3);
    SHOW(fcntl(3, F_GETFD)), SHOW(errno == EBADF);
    verify("closefrom");
    int low = open_low();
    SHOW(dup2(low, 50)), SHOW(dup3(low, 51, O_CLOEXEC)), SHOW(dup2(777, 52)), SHOW(errno == EBADF), SHOW(dup2(low, low) == low);
    SHOW(dup2(-1, 5)), SHOW(dup2(low, -1)), SHOW(errno == EBADF);
    for (int fd = 100; fd < 1200; fd++) (void)dup2(low, fd);
    verify("dup2 onto many");
    closefrom(3);
    pid_t child = vfork();
    if (!child) {
        for (int fd = 3; fd < 20000; fd++) close(fd);
        execl("/bin/echo", "echo", "from a vfork child", NULL);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0), SHOW(status);
    verify("a vfork child closed everything");
    char *arguments[] = {"echo", "from a spawned child", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    SHOW(posix_spawn(&child, "/bin/echo", &actions, NULL, arguments, environ));
    waitpid(child, &status, 0), SHOW(status);
    child = fork();
    if (!child) {
        closefrom(3);
        execl("/bin/echo", "echo", "from a forked child", NULL);
        _exit(127);
    }
    waitpid(child, &status, 0), SHOW(status);
    verify("children");
}
