/* Limits on memory that a program sets for itself: words are as | data, then self | number | fork | exec | spawn. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

#define TELL(what, call)                                                                              \
    do {                                                                                              \
        errno = 0;                                                                                    \
        int answer = (call);                                                                          \
        printf("%s: %d %s\n", what, answer, errno ? strerror(errno) : "");                            \
    } while (0)

static long fill(unsigned char *at, size_t bytes) {
    long sum = 0;
    for (size_t i = 0; i < bytes; i += 4096) at[i] = (i >> 12) % 251;
    for (size_t i = 0; i < bytes; i += 4096) sum += at[i];
    return sum;
}

static void *speak(void *word) {
    printf("%s\n", (char *)word);
    return NULL;
}

/* What the limit lets the process do: a little in every way, and not much in any. */
static void live(int which) {
    const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    struct rlimit limit;
    getrlimit(which, &limit);
    printf("limit %lu %lu\n", limit.rlim_cur / MIB, limit.rlim_max / MIB);
    unsigned char *little = malloc(24 * MIB);
    printf("little %ld\n", fill(little, 24 * MIB));
    TELL("much", malloc(3072 * MIB) != NULL);
    TELL("map", mmap(NULL, 3072 * MIB, both, anonymous, -1, 0) != MAP_FAILED);
    TELL("share", mmap(NULL, 3072 * MIB, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    char *reserved = mmap(NULL, 3072 * MIB, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);
    printf("reserve %d\n", reserved != MAP_FAILED);
    if (reserved != MAP_FAILED) {
        TELL("open a part", mprotect(reserved, 16 * MIB, both));
        TELL("open all", mprotect(reserved, 3072 * MIB, both));
        munmap(reserved, 3072 * MIB);
    }
    char *small = mmap(NULL, 16 * MIB, both, anonymous, -1, 0);
    TELL("grow", mremap(small, 16 * MIB, 3072 * MIB, MREMAP_MAYMOVE) != MAP_FAILED);
    TELL("break", sbrk(3072 * MIB) != (void *)-1);
    /* What is given back may be had again, many times over. */
    for (int i = 0; i < 40; i++) {
        unsigned char *again = mmap(NULL, 96 * MIB, both, anonymous, -1, 0);
        if (again == MAP_FAILED) printf("again %d: %d\n", i, errno);
        else munmap(again, 96 * MIB);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, speak, "thread") == 0) pthread_join(thread, NULL);
    fflush(stdout);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int which = strcmp(argv[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
    if (argc > 3) {
        live(which);
        return 0;
    }
    unsigned char *before = malloc(48 * MIB);
    printf("before %ld\n", fill(before, 48 * MIB));
    struct rlimit limit = {1024 * MIB, 2048 * MIB}, crossed = {2048 * MIB, 1024 * MIB};
    TELL("crossed", setrlimit(which, &crossed));
    const int by_number = strcmp(argv[2], "number") == 0;
    TELL("set", by_number ? syscall(SYS_setrlimit, which, &limit) : setrlimit(which, &limit));
    fflush(stdout);
    int status = 0;
    if (by_number || strcmp(argv[2], "self") == 0) {
        live(which);
        limit.rlim_cur = limit.rlim_max;
        TELL("higher", by_number ? syscall(SYS_prlimit64, 0, which, &limit, NULL) : prlimit(0, which, &limit, NULL));
        TELL("more", (before = realloc(before, 1200 * MIB)) != NULL);
    } else if (strcmp(argv[2], "spawn") == 0) {
        pid_t child;
        char *words[] = {argv[0], argv[1], "self", "again", NULL};
        extern char **environ;
        if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ) == 0) waitpid(child, &status, 0);
    } else {
        pid_t child = fork();
        if (child == 0 && strcmp(argv[2], "exec") == 0) execl("/proc/self/exe", argv[0], argv[1], "self", "again", NULL);
        if (child == 0) {
            live(which);
            _exit(0);
        }
        waitpid(child, &status, 0);
    }
    printf("status %d, after %ld\n", status, fill(before, 48 * MIB));
    return 0;
}
