// How many processors there are, by each of libc's answers, in this process, in a thread, and in the child of a fork; and that a set which
// is too small is refused.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

static void *show(void *where) {
    cpu_set_t own, of_thread, small;
    if (sched_getaffinity(0, sizeof own, &own) != 0 || pthread_getaffinity_np(pthread_self(), sizeof of_thread, &of_thread) != 0)
        exit(1);
    int refused = sched_getaffinity(0, 1, &small) == -1 && errno == EINVAL && pthread_getaffinity_np(pthread_self(), 1, &small) == EINVAL;
    printf("%s: %d %d %ld %d %s\n", (char *)where, CPU_COUNT(&own), CPU_COUNT(&of_thread), sysconf(_SC_NPROCESSORS_ONLN), get_nprocs(),
           refused && CPU_EQUAL(&own, &of_thread) ? "right" : "wrong");
    fflush(stdout);
    return NULL;
}

int main(void) {
    show("process");
    pthread_t thread;
    if (pthread_create(&thread, NULL, show, "thread") != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        show("child");
        return 0;
    }
    return waitpid(child, NULL, 0) == child ? 0 : 1;
}
