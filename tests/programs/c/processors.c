// How many processors there are, by each of libc's answers, in this process, in a thread, and in the child of a fork; and that a set which
// is too small is refused. With an argument: whether threads that set themselves to different processors run on different ones.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
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

// The first processor that this process may take, or the last.
static cpu_set_t one(int last) {
    cpu_set_t all, set;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        exit(1);
    CPU_ZERO(&set);
    for (int number = 0; number < CPU_SETSIZE; number++)
        if (CPU_ISSET(number, &all)) {
            if (CPU_COUNT(&set) != 0 && !last)
                break;
            CPU_ZERO(&set);
            CPU_SET(number, &set);
        }
    return set;
}

// What the kernel says of this thread.
static void *told(void *where) {
    CPU_ZERO((cpu_set_t *)where);
    syscall(SYS_sched_getaffinity, 0, sizeof(cpu_set_t), where);
    return NULL;
}

static void *by_thread(void *where) {
    cpu_set_t set = one(1);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        exit(2);
    return told(where);
}

static void *by_number(void *where) {
    cpu_set_t set = one(1), none;
    CPU_ZERO(&none);
    if (sched_setaffinity(0, sizeof none, &none) != -1 || errno != EINVAL || sched_setaffinity(gettid(), sizeof set, &set) != 0)
        exit(3);
    return told(where);
}

static int set_apart(void) {
    cpu_set_t first = one(0), last = one(1), seen[4];
    pthread_attr_t attributes;
    pthread_t threads[3];
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setaffinity_np(&attributes, sizeof last, &last) != 0 ||
        pthread_create(&threads[0], NULL, by_thread, &seen[0]) != 0 || pthread_create(&threads[1], NULL, by_number, &seen[1]) != 0 ||
        pthread_create(&threads[2], &attributes, told, &seen[2]) != 0 || sched_setaffinity(0, sizeof first, &first) != 0)
        return 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    told(&seen[3]);
    for (int i = 0; i < 4; i++)
        printf("%d %s\n", CPU_COUNT(&seen[i]), CPU_EQUAL(&seen[i], &seen[3]) ? "together" : "apart");
    return 0;
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1)
        return set_apart();
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
