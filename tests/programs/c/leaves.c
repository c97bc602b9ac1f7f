/* Threads leave by exit(2) alone, until none is left: the process is over then, natively and managed. `leaves WAY MIB`: memory of
 * that size is filled first, so that there is something to evict. What is printed, and the exit code, are compared with a native run. */
#define _GNU_SOURCE
#include "pattern.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t *memory;
static uint64_t mebibytes;
static const char *way;
static pthread_t first;

static void raw(int code) {
    syscall(SYS_exit, code);
}

/* By an instruction of the program's own. */
static void bare(long code) {
    __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(code) : "rcx", "r11", "memory");
    __builtin_unreachable();
}

static void check(const char *who) {
    verify(memory, mebibytes * 256, 1, who);
    printf("%s right\n", who);
    fflush(stdout);
}

/* Waits until the first thread has left: it is a zombie then. */
static void outlive_the_first(void) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    for (;;) {
        FILE *file = fopen(path, "r");
        if (file && fgets(line, sizeof line, file) && strncmp(strrchr(line, ')') + 2, "Z", 1) == 0) {
            fclose(file);
            return;
        }
        if (file) fclose(file);
        usleep(1000);
    }
}

static void *worker(void *unused) {
    outlive_the_first();
    check("worker");
    if (!strcmp(way, "worker-raw")) raw(5);
    if (!strcmp(way, "worker-exits")) exit(6);
    return unused;
}

/* Joins the first thread, which has left by pthread_exit: it is told of that end as ever. */
static void *joiner(void *unused) {
    void *result = NULL;
    if (pthread_join(first, &result)) _exit(97);
    printf("joined %s\n", (char *)result);
    check("joiner");
    return unused;
}

static int child_of_clone(void *unused) {
    (void)unused;
    check("child");
    raw(3);
    return 0;
}

static int leave_at_once(void *unused) {
    (void)unused;
    raw(3);
    return 0;
}

/* Children that leave while threads of ours may still be starting in them. */
static void children_at_once(void) {
    char *stack = (char *)malloc(1 << 16) + (1 << 16);
    int right = 0;
    for (int round = 0; round < 60; round++) {
        int status = -1;
        pid_t pid = round % 2 ? fork() : clone(leave_at_once, stack, SIGCHLD, NULL);
        if (pid == 0) leave_at_once(NULL);
        right += pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3;
    }
    printf("%d of 60 children right\n", right);
}

static void *forker(void *unused) {
    pid_t child = fork();
    if (child == 0) {
        check("child of a thread");
        raw(4);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child) _exit(96);
    printf("status %#x\n", status);
    return unused;
}

static void child(pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) _exit(95);
    printf("status %#x\n", status);
    check("parent");
}

int main(int count, char **words) {
    if (count < 3) return 98;
    way = words[1];
    mebibytes = (uint64_t)atol(words[2]);
    memory = patterned(mebibytes, 1);
    setvbuf(stdout, NULL, _IONBF, 0);
    check("main");
    pthread_t thread;
    first = pthread_self();
    if (!strcmp(way, "raw")) raw(7);
    if (!strcmp(way, "bare")) bare(7);
    if (!strncmp(way, "worker", 6)) {
        if (pthread_create(&thread, NULL, worker, NULL)) return 98;
        /* Nobody sees when the first thread left, if others follow at once: its code would be a matter of chance. */
        if (!strcmp(way, "worker-bare")) bare(0);
        raw(7);
    }
    if (!strcmp(way, "joined")) {
        if (pthread_create(&thread, NULL, joiner, NULL)) return 98;
        pthread_exit("first");
    }
    if (!strcmp(way, "fork")) {
        pid_t pid = fork();
        if (pid == 0) child_of_clone(NULL);
        child(pid);
    }
    if (!strcmp(way, "clone")) child(clone(child_of_clone, (char *)malloc(1 << 18) + (1 << 18), SIGCHLD, NULL));
    if (!strcmp(way, "raw-fork")) {
        pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) child_of_clone(NULL);
        child(pid);
    }
    if (!strcmp(way, "at-once")) children_at_once();
    if (!strcmp(way, "vfork")) {
        pid_t pid = vfork();
        if (pid == 0) raw(3);
        child(pid);
    }
    if (!strcmp(way, "thread")) {
        if (pthread_create(&thread, NULL, forker, NULL) || pthread_join(thread, NULL)) return 98;
        check("main");
        raw(2);
    }
    if (!strcmp(way, "wait")) {
        /* Does not leave by itself: SIGTERM ends it, though it is not in the first thread. */
        if (pthread_create(&thread, NULL, worker, NULL)) return 98;
        pthread_create(&thread, NULL, (void *(*)(void *))(void (*)(void))pause, NULL);
        raw(7);
    }
    return 0;
}
