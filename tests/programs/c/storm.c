/* Threads, signals, forks and system calls on far memory, all at once, for a while; every byte is looked at.
 * usage: storm SECONDS [SEED] */
#define _GNU_SOURCE
#include "pattern.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, PAGES = 2048, SHARED_PAGES = 1024, WAYS = 9, BUFFER_BYTES = 600000 };
static uint64_t *shared;
static volatile int over;
static unsigned long counts[WAYS], signals;

static void wrong(const char *what) {
    printf("WRONG %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _Exit(99);
}

#define MUST(expression) ((expression) ? (void)0 : wrong(#expression))

static uint64_t next(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u;
    return pattern_word(*seed >> 9, *seed & 255, 7);
}

/* Looks at a page that nobody changes; a system call of its own on far memory. */
static void on_signal(int signal) {
    int errno_before = errno;
    uint64_t page = __atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED) * 61 % SHARED_PAGES;
    for (int word = 0; word < PAGE_WORDS; word += 97)
        if (shared[page * PAGE_WORDS + word] != pattern_word(page, word, 1)) wrong("in a handler");
    if (signal == SIGUSR2) MUST(access((char *)&shared[page * PAGE_WORDS + 300], F_OK) < 0);
    errno = errno_before;
}

/* Moves all bytes with calls that may be interrupted or do a part only. */
static void all_of(ssize_t (*call)(int, struct iovec *, int), int fd, char *at, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done, half = left / 2;
        struct iovec parts[2] = {{at + done, half}, {at + done + half, left - half}};
        ssize_t moved = call(fd, parts, 2);
        MUST(moved > 0 || (moved < 0 && errno == EINTR));
        done += moved > 0 ? moved : 0;
    }
}

static ssize_t by_readv(int fd, struct iovec *parts, int count) { return readv(fd, parts, count); }
static ssize_t by_writev(int fd, struct iovec *parts, int count) { return writev(fd, parts, count); }
static ssize_t by_recvmsg(int fd, struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    return recvmsg(fd, &message, 0);
}

struct sender {
    int fd;
    char *at;
    size_t bytes;
};

static void *send_all(void *argument) {
    struct sender *sender = argument;
    all_of(by_writev, sender->fd, sender->at, sender->bytes);
    return NULL;
}

/* Through a socket, sent by a thread that lives for nothing else. */
static void through_a_socket(uint64_t *seed, char *from, char *to) {
    size_t bytes = 1 + next(seed) % BUFFER_BYTES;
    int ends[2];
    pthread_t thread;
    for (size_t i = 0; i < bytes; i++) from[i] = (char)(i * 31 + *seed);
    MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct sender sender = {ends[1], from, bytes};
    MUST(!pthread_create(&thread, NULL, send_all, &sender));
    all_of(next(seed) % 2 ? by_readv : by_recvmsg, ends[0], to, bytes);
    pthread_join(thread, NULL);
    MUST(!memcmp(from, to, bytes));
    close(ends[0]), close(ends[1]);
}

static void through_a_file(uint64_t *seed, char *from, char *to) {
    size_t bytes = 1 + next(seed) % BUFFER_BYTES;
    int fd = memfd_create("storm", MFD_CLOEXEC);
    for (size_t i = 0; i < bytes; i++) from[i] = (char)(i * 7 + *seed);
    MUST(fd >= 0 && pwrite(fd, from, bytes, 4096) == (ssize_t)bytes);
    memset(to, 0, bytes);
    MUST(pread(fd, to, bytes, 4096) == (ssize_t)bytes && !memcmp(from, to, bytes));
    close(fd);
}

static void wait_for(pid_t child) {
    int status;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
    MUST(got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void mappings(uint64_t *seed) {
    size_t bytes = (1 + next(seed) % 64) * 4096;
    char *at = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    memset(at, 5, 2 * bytes);
    MUST(!madvise(at, bytes, MADV_DONTNEED) && !mprotect(at + bytes, bytes, PROT_READ));
    for (size_t i = 0; i < 2 * bytes; i += 512) MUST(at[i] == (i < bytes ? 0 : 5));
    MUST(!munmap(at, bytes) && !munmap(at + bytes, bytes));
}

static void one(uint64_t way, uint64_t *seed, uint64_t *own, uint64_t *version, char *from, char *to) {
    uint64_t first = next(seed) % PAGES, pages = 1 + next(seed) % 64;
    sigset_t all, before;
    pid_t child;
    static char *const words[] = {"true", NULL};
    pages = pages < PAGES - first ? pages : PAGES - first;
    switch (way) {
    case 0:
        for (uint64_t word = first * PAGE_WORDS; word < (first + pages) * PAGE_WORDS; word++)
            if (own[word] != pattern_word(word / PAGE_WORDS, word % PAGE_WORDS, *version)) wrong("own, a part");
        break;
    case 1: through_a_socket(seed, from, to); break;
    case 2: through_a_file(seed, from, to); break;
    case 3: mappings(seed); break;
    case 4: fill(own, PAGES, ++*version); break;
    case 5:
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        verify(own, PAGES / 4, *version, "with signals blocked");
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        break;
    case 6:
        if (next(seed) % 4) break;
        MUST((child = fork()) >= 0);
        if (!child) {
            verify(own, PAGES, *version, "in a child");
            verify(shared, 64, 1, "shared in a child");
            _exit(0);
        }
        wait_for(child);
        break;
    case 7:
        if (next(seed) % 4) break;
        MUST(!posix_spawnp(&child, "true", NULL, NULL, words, (char *const[]){NULL}));
        wait_for(child);
        break;
    default: verify(own, PAGES, *version, "own, all"); break;
    }
}

static void *work(void *argument) {
    uint64_t seed = (uintptr_t)argument, version = seed;
    uint64_t *own = malloc(PAGES * 4096ul);
    char *from = malloc(BUFFER_BYTES), *to = malloc(BUFFER_BYTES);
    MUST(own && from && to);
    fill(own, PAGES, version);
    while (!over) {
        uint64_t way = next(&seed) % WAYS;
        one(way, &seed, own, &version, from, to);
        __atomic_fetch_add(&counts[way], 1, __ATOMIC_RELAXED);
    }
    verify(own, PAGES, version, "own, at the end");
    return NULL;
}

int main(int argc, char **argv) {
    long seconds = argc > 1 ? atol(argv[1]) : 5;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    pthread_t threads[WORKERS];
    shared = patterned(SHARED_PAGES / 256, 1);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = i ? SA_RESTART : 0};
        sigaction(i ? SIGUSR1 : SIGUSR2, &action, NULL);
    }
    for (int i = 0; i < WORKERS; i++)
        MUST(!pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(seed * 1000 + i + 1)));
    struct timespec begin, now, pause = {0, 3000000};
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        nanosleep(&pause, NULL);
        pthread_kill(threads[next(&seed) % WORKERS], next(&seed) % 2 ? SIGUSR1 : SIGUSR2);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec < seconds);
    over = 1;
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    verify(shared, SHARED_PAGES, 1, "shared, at the end");
    fprintf(stderr, "storm: %lu signals;", signals);
    for (int i = 0; i < WAYS; i++) fprintf(stderr, " %lu", counts[i]);
    fprintf(stderr, "\n");
    puts("storm over");
    return 0;
}
