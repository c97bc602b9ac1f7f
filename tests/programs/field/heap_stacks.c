/* Tasks on a stack of malloc's, which is far memory: they read evicted pages from deep in it, and those that are no
 * threads read a file by stdio, and allocate.
 *   task    share the memory alone (CLONE_VM), with nothing of libc's made for them
 *   vfork   the same while the parent sleeps (CLONE_VFORK)
 *   thread  are threads of the process, past libc
 * usage: heap_stacks task|vfork|thread */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 256 << 10, DEEP = 160 << 10, ROUNDS = 4 };

static const uint64_t mebibytes = 32;
static uint64_t *memory;
static int is_thread;
static volatile int result, left;

static int task(void *path) {
    volatile char *deep = __builtin_alloca(DEEP);
    for (int at = DEEP - 1; at >= 0; at -= 512) deep[at] = 1;
    verify(memory, mebibytes * 256, 1, "the task");
    int number = 1;
    if (!is_thread) {
        FILE *file = fopen(path, "r");
        number = file && fscanf(file, "%d", &number) == 1 ? number : -1;
        if (file) fclose(file);
        uint64_t *own = malloc(1 << 20);
        fill(own, 256, 2);
        verify(own, 256, 2, "the task's own");
        free(own);
    }
    result = number > 0 && deep[511] == 1 ? 7 : 8;
    syscall(SYS_exit, 0);
    return 0;
}

int main(int count, char **words) {
    if (count < 2) return 98;
    memory = patterned(mebibytes, 1);
    is_thread = !strcmp(words[1], "thread");
    const int of_thread = CLONE_THREAD | CLONE_SIGHAND | CLONE_FS | CLONE_FILES | CLONE_CHILD_CLEARTID,
              of_process = !strcmp(words[1], "vfork") ? CLONE_VFORK | SIGCHLD : SIGCHLD;
    for (int round = 0; round < ROUNDS; round++) {
        char *stack = malloc(STACK);
        result = 0;
        left = 1;
        pid_t pid = clone(task, stack + STACK, CLONE_VM | (is_thread ? of_thread : of_process), "/proc/sys/kernel/pid_max", NULL, NULL, &left);
        int status = 0;
        if (!is_thread) waitpid(pid, &status, 0);
        while (is_thread && pid > 0 && left) usleep(1000);
        if (pid < 0 || status || result != 7) printf("round %d: %d, status %#x, result %d\n", round, pid, status, result);
        fill(memory, mebibytes * 256, 3);
        fill(memory, mebibytes * 256, 1);
        free(stack);
    }
    puts("end");
    return 0;
}
