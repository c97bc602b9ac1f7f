/* Two processes under one budget: how much each may keep, as the kernel sees it. Ours works for as long as it takes until it has
 * what it should, several times in a row; then the other one is told that it may end.
 * usage: sharers idle      a process that sleeps gives way to one that works, and has its bytes when it wakes up
 *        sharers busy      two that work have about the same
 *        sharers killed    what a killed process held is free at once, before anybody has waited for it */
#define _GNU_SOURCE
#include "pattern.h"
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MEBIBYTES = 96, LOOKS = 4 };

static uint64_t *reserve(void) {
    return mmap(NULL, MEBIBYTES << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Resident KiB of the mapping that holds an address. */
static long resident_kib(const void *memory) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long start, end;
    long kib = 0;
    int inside = 0;
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (unsigned long)memory && (unsigned long)memory < end;
        else if (inside && sscanf(line, "Rss: %ld", &kib) == 1)
            break;
    }
    if (smaps) fclose(smaps);
    return kib;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Reads the first pages over and over. */
static void work(uint64_t *memory, uint64_t pages, double seconds) {
    for (double end = now() + seconds; now() < end;) verify(memory, pages, 1, "worker");
}

/* Whether there is something to read. */
static int is_told(int from) {
    struct pollfd wanted = {from, POLLIN, 0};
    return poll(&wanted, 1, 0) != 0;
}

/* A child that fills its memory, says so, and works or sleeps until it is told to end. */
static pid_t child(int busy, int *ready, int *end, int *result) {
    int said[2], ends[2], told[2];
    if (pipe(said) || pipe(ends) || pipe(told)) exit(98);
    pid_t pid = fork();
    if (pid == 0) {
        /* So that it reads an end when its parent has ended. */
        close(said[0]), close(ends[1]), close(told[0]);
        uint64_t *memory = reserve();
        fill(memory, MEBIBYTES * 256, 1);
        if (write(said[1], "r", 1) != 1) _exit(97);
        char end_letter;
        while (busy && !is_told(ends[0])) work(memory, MEBIBYTES * 256, 0.1);
        if (read(ends[0], &end_letter, 1) != 1) _exit(93);
        long kib = resident_kib(memory);
        verify(memory, MEBIBYTES * 256, 1, "child");
        _exit(write(told[1], &kib, sizeof kib) == sizeof kib ? 0 : 96);
    }
    close(said[1]), close(ends[0]), close(told[1]);
    *ready = said[0];
    *end = ends[1];
    *result = told[0];
    char letter;
    if (read(said[0], &letter, 1) != 1) exit(95);
    return pid;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "idle";
    int busy = !strcmp(way, "busy"), killed = !strcmp(way, "killed"), ready, end, result, status;
    long theirs = 0;
    pid_t pid = child(busy, &ready, &end, &result);
    if (killed) kill(pid, SIGKILL);
    long least_kib = (busy ? 24 : 40) << 10, most_kib = (busy ? 40 : 64) << 10;
    uint64_t pages = (busy ? MEBIBYTES : 48) * 256;
    uint64_t *memory = reserve();
    fill(memory, pages, 1);
    long ours = 0;
    for (int well = 0; well < LOOKS;) {
        work(memory, pages, 0.25);
        ours = resident_kib(memory);
        well = ours >= least_kib && ours <= most_kib ? well + 1 : 0;
    }
    if (!killed && write(end, "e", 1) != 1) return 92;
    if (!killed && read(result, &theirs, sizeof theirs) != sizeof theirs) return 94;
    verify(memory, pages, 1, "parent");
    waitpid(pid, &status, 0);
    if (!killed && status != 0) return 91;
    printf("ours %ld theirs %ld\n", ours >> 10, theirs >> 10);
    return 0;
}
