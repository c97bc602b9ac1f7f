/* A sandbox, as browsers have it: a process in a root directory without /proc forks others, each the process 1 of a PID namespace of its
 * own. They live at once, limit their memory, fill it, and start a thread, while the first one forks on. With `exec`, the first one is a
 * program that was started in a user namespace. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define SHARED (24 * MIB)
#define OWN (12 * MIB)
#define CHILDREN 4

static unsigned user;

static pid_t child_with(long flags) { return (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0); }

static void fill(unsigned char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i += 512) at[i] = (unsigned char)((i >> 9) * 7 + seed);
}

static int differs(const unsigned char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i += 512)
        if (at[i] != (unsigned char)((i >> 9) * 7 + seed)) return 1;
    return 0;
}

/* A user that the namespace knows keeps its rights there through exec. */
static int map_user(void) {
    FILE *map = fopen("/proc/self/uid_map", "w");
    return map && fprintf(map, "0 %u 1", user) > 0 && fclose(map) == 0;
}

static void *think(void *memory) { return (void *)(long)differs(memory, OWN, 99); }

/* 0: all that a limited process may do went well. */
static int live(unsigned char *shared, unsigned number) {
    struct rlimit limit = {1024 * MIB, 1024 * MIB}, told;
    if (setrlimit(RLIMIT_DATA, &limit) || getrlimit(RLIMIT_DATA, &told) || told.rlim_cur != limit.rlim_cur) return 2;
    if (differs(shared, SHARED, 1)) return 3;
    fill(shared, SHARED, 40 + number);
    unsigned char *own = mmap(NULL, OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return 4;
    fill(own, OWN, 99);
    pthread_t thread;
    void *answer = NULL;
    if (pthread_create(&thread, NULL, think, own) || pthread_join(thread, &answer) || answer) return 5;
    return differs(shared, SHARED, 40 + number) ? 6 : 0;
}

static int sandbox(unsigned char *shared) {
    if (chroot(".") || chdir("/")) return 10;
    int go[2], up[2], status, failed = 0;
    if (pipe(go) || pipe(up)) return 11;
    pid_t children[CHILDREN];
    for (unsigned i = 0; i < CHILDREN; i++) {
        children[i] = child_with(CLONE_NEWPID);
        if (children[i] == 0) {
            char byte = 0;
            if (getpid() != 1) _exit(7);
            if (write(up[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(8);
            _exit(live(shared, i));
        }
        char byte;
        if (children[i] < 0 || read(up[0], &byte, 1) != 1) return 12;
        /* One of this namespace comes and goes, and leaves what it had to the next ones. */
        pid_t other = child_with(0);
        if (other == 0) _exit(differs(shared, SHARED, 1));
        if (other < 0 || waitpid(other, &status, 0) != other || status) return 13;
    }
    /* Beside them, one more of this namespace. */
    pid_t stays = child_with(0);
    if (stays == 0) {
        for (;;) pause();
    }
    for (unsigned i = 0; i < CHILDREN; i++)
        if (write(go[1], "", 1) != 1) return 14;
    for (unsigned i = 0; i < CHILDREN; i++) {
        waitpid(children[i], &status, 0);
        printf("child %u: %#x\n", i, status);
        failed |= status;
    }
    kill(stays, SIGKILL);
    waitpid(stays, &status, 0);
    return failed ? 15 : differs(shared, SHARED, 1);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = argc > 1 ? argv[1] : "fork";
    if (strcmp(what, "inside") == 0) {
        unsigned char *memory = malloc(SHARED);
        fill(memory, SHARED, 1);
        return sandbox(memory);
    }
    user = geteuid();
    char place[] = "/tmp/empty-XXXXXX";
    if (!mkdtemp(place) || chdir(place)) return 1;
    unsigned char *shared = malloc(SHARED);
    fill(shared, SHARED, 1);
    pid_t first = child_with(CLONE_NEWUSER | CLONE_NEWPID);
    if (first == 0 && strcmp(what, "exec") == 0 && map_user()) execl("/proc/self/exe", argv[0], "inside", NULL);
    if (first == 0) _exit(sandbox(shared));
    int status = -1;
    if (first < 0) printf("no namespace: %s\n", strerror(errno));
    else waitpid(first, &status, 0);
    printf("sandbox %#x, after %d\n", status, differs(shared, SHARED, 1));
    rmdir(place);
    return 0;
}
