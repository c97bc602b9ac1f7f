/* Processes of one run read and write each other's far memory (process_vm_readv, process_vm_writev), as the shared-memory
 * transports of MPI do. What is printed is the same natively. The first argument says how:
 *   peer      a parent reads and writes its child's memory, while the child waits, or computes with "busy"
 *   both      two processes read and write each other's at the same time
 *   vectors   buffers of odd sizes at odd places, by arrays, near and far
 *   untouched pages that the other process has allocated and never touched
 *   refused   a wrong address, a wrong process, memory that may not be read
 * The second argument is the size of each process's memory in MiB. */
#define _GNU_SOURCE
#include "pattern.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP_PAGES 16
static uint64_t pages;
static int by_number;

static void need(int good, const char *what) {
    if (!good) {
        printf("WRONG %s: %s\n", what, strerror(errno));
        fflush(stdout);
        _exit(97);
    }
}

static ssize_t vm(int writes, pid_t pid, struct iovec *l, unsigned long ln, struct iovec *r, unsigned long rn) {
    if (by_number) return syscall(writes ? SYS_process_vm_writev : SYS_process_vm_readv, pid, l, ln, r, rn, 0L);
    return writes ? process_vm_writev(pid, l, ln, r, rn, 0) : process_vm_readv(pid, l, ln, r, rn, 0);
}

static ssize_t one(int writes, pid_t pid, void *mine, void *theirs, size_t bytes) {
    struct iovec l = {mine, bytes}, r = {theirs, bytes};
    return vm(writes, pid, &l, 1, &r, 1);
}

static void send_all(int fd, const void *from, size_t bytes) { need(write(fd, from, bytes) == (ssize_t)bytes, "write"); }
static void receive(int fd, void *to, size_t bytes) { need(read(fd, to, bytes) == (ssize_t)bytes, "read"); }

/* Reads all of the other's pages and checks them, then writes a new version over every second step of pages. */
static void read_and_write(pid_t pid, uint64_t *theirs, uint64_t version, uint64_t next, const char *who) {
    uint64_t *mine = malloc(STEP_PAGES << 12);
    for (uint64_t page = 0; page < pages; page += STEP_PAGES) {
        memset(mine, 255, STEP_PAGES << 12);
        need(one(0, pid, mine, theirs + page * PAGE_WORDS, STEP_PAGES << 12) == STEP_PAGES << 12, who);
        for (uint64_t word = 0; word < STEP_PAGES * PAGE_WORDS; word++)
            need(mine[word] == pattern_word(page + word / PAGE_WORDS, word % PAGE_WORDS, version), "content read");
    }
    for (uint64_t page = 0; page < pages; page += 2 * STEP_PAGES) {
        for (uint64_t word = 0; word < STEP_PAGES * PAGE_WORDS; word++)
            mine[word] = pattern_word(page + word / PAGE_WORDS, word % PAGE_WORDS, next);
        need(one(1, pid, mine, theirs + page * PAGE_WORDS, STEP_PAGES << 12) == STEP_PAGES << 12, who);
    }
}

static void check_written(const uint64_t *memory, uint64_t version, uint64_t next) {
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t word = 0; word < PAGE_WORDS; word++) {
            uint64_t now = page / STEP_PAGES % 2 ? version : next;
            need(memory[page * PAGE_WORDS + word] == pattern_word(page, word, now), "content after the other's writes");
        }
}

static int peer(int busy) {
    int up[2], down[2];
    need(!pipe(up) && !pipe(down), "pipe");
    pid_t pid = fork();
    if (!pid) {
        char byte;
        close(down[1]);
        uint64_t *memory = patterned(pages >> 8, 1);
        send_all(up[1], &memory, sizeof memory);
        /* Busy: it writes to other memory meanwhile, so that the pages that are read and written keep leaving. */
        if (busy) {
            volatile unsigned char *other = malloc(pages << 12);
            for (uint64_t round = 0; round < 4; round++)
                for (uint64_t page = 0; page < pages; page++) other[page << 12] = round + page;
        }
        receive(down[0], &byte, 1);
        check_written(memory, 1, 2);
        exit(0);
    }
    uint64_t *theirs;
    receive(up[0], &theirs, sizeof theirs);
    read_and_write(pid, theirs, 1, 2, "a call on the child's memory");
    send_all(down[1], "x", 1);
    int status;
    need(waitpid(pid, &status, 0) == pid && status == 0, "the child's end");
    puts("peer ok");
    return 0;
}

/* Both reading and writing the other's memory at the same time: neither may wait for the other. */
static int both(void) {
    int to[2][2];
    need(!pipe(to[0]) && !pipe(to[1]), "pipe");
    pid_t first = getpid(), pid = fork();
    int me = pid == 0;
    pid_t other = me ? first : pid;
    uint64_t *memory = patterned(pages >> 8, 1 + me), *theirs;
    char byte;
    send_all(to[!me][1], &memory, sizeof memory);
    receive(to[me][0], &theirs, sizeof theirs);
    read_and_write(other, theirs, 1 + !me, 5, "a call on the other's memory");
    send_all(to[!me][1], "x", 1);
    receive(to[me][0], &byte, 1);
    check_written(memory, 1 + me, 5);
    /* Nobody ends before the other has looked. */
    send_all(to[!me][1], "y", 1);
    receive(to[me][0], &byte, 1);
    if (me) exit(0);
    int status;
    need(waitpid(pid, &status, 0) == pid && status == 0, "the child's end");
    puts("both ok");
    return 0;
}

static pid_t child_with(uint64_t **memory, uint64_t *(*make)(void), int *up) {
    need(!pipe(up), "pipe");
    pid_t pid = fork();
    if (!pid) {
        uint64_t *made = make();
        send_all(up[1], &made, sizeof made);
        for (;;) pause();
    }
    receive(up[0], memory, sizeof *memory);
    return pid;
}

static void end_child(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static uint64_t *full(void) { return patterned(pages >> 8, 1); }

static int vectors(void) {
    int up[2];
    uint64_t *theirs;
    pid_t pid = child_with(&theirs, full, up);
    unsigned char *from = (unsigned char *)theirs, *far = malloc(pages << 12), near[5000];
    memset(far, 0, pages << 12);
    uint64_t *image = patterned(pages >> 8, 1);
    uint64_t seed = 7, moved = 0;
    for (int round = 0; round < 200; round++) {
        struct iovec l[9], r[11];
        size_t total = 0, left, at[9];
        for (int i = 0; i < 11; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t bytes = (seed >> 33) % 40000;
            size_t start = (seed >> 20) % ((pages << 12) - bytes);
            r[i] = (struct iovec){from + start, bytes};
            total += bytes;
        }
        left = total;
        for (int i = 0; i < 9; i++) {
            size_t bytes = i == 4 ? sizeof near : i == 8 ? left : total / 9;
            if (bytes > left) bytes = left;
            at[i] = i * (pages << 12) / 9 / 2;
            l[i] = (struct iovec){i == 4 ? near : far + at[i], bytes};
            left -= bytes;
        }
        need(vm(0, pid, l, 9, r, 11) == (ssize_t)total, "a call by arrays");
        int il = 0, ir = 0;
        size_t ol = 0, or = 0;
        while (il < 9 && ir < 11) {
            if (ol == l[il].iov_len) { il++; ol = 0; continue; }
            if (or == r[ir].iov_len) { ir++; or = 0; continue; }
            unsigned char right = ((unsigned char *)image)[(unsigned char *)r[ir].iov_base + or - from];
            need(((unsigned char *)l[il].iov_base)[ol] == right, "content by arrays");
            ol++, or++, moved++;
        }
    }
    printf("vectors ok, %llu bytes\n", (unsigned long long)moved);
    end_child(pid);
    return 0;
}

static uint64_t *blank(void) {
    uint64_t *memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[PAGE_WORDS] = 7;
    return memory;
}

static int untouched(void) {
    int up[2];
    uint64_t *theirs;
    pid_t pid = child_with(&theirs, blank, up);
    uint64_t *mine = malloc(pages << 12);
    need(one(0, pid, mine, theirs, pages << 12) == (ssize_t)(pages << 12), "a read of untouched pages");
    for (uint64_t word = 0; word < pages * PAGE_WORDS; word++) need(mine[word] == (word == PAGE_WORDS ? 7 : 0), "zeros");
    fill(mine, pages, 3);
    need(one(1, pid, mine, theirs, pages << 12) == (ssize_t)(pages << 12), "a write to untouched pages");
    memset(mine, 0, pages << 12);
    need(one(0, pid, mine, theirs, pages << 12) == (ssize_t)(pages << 12), "a read of written pages");
    verify(mine, pages, 3, "what was written to untouched pages");
    puts("untouched ok");
    end_child(pid);
    return 0;
}

static uint64_t *closed(void) {
    uint64_t *memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(memory, pages, 1);
    mprotect(memory + 64 * PAGE_WORDS, 8 << 12, PROT_NONE);
    mprotect(memory + 128 * PAGE_WORDS, 8 << 12, PROT_READ);
    munmap(memory + 192 * PAGE_WORDS, 8 << 12);
    return memory;
}

static const char *said(ssize_t answer) {
    static char text[64];
    snprintf(text, sizeof text, "%zd %s", answer, answer < 0 ? strerror(errno) : "");
    return text;
}

static int refuses(void) {
    int up[2];
    uint64_t *theirs;
    pid_t pid = child_with(&theirs, closed, up);
    uint64_t *mine = malloc(32 << 12);
    printf("read of closed pages: %s\n", said(one(0, pid, mine, theirs + 64 * PAGE_WORDS, 8 << 12)));
    printf("write to closed pages: %s\n", said(one(1, pid, mine, theirs + 64 * PAGE_WORDS, 8 << 12)));
    printf("read up to closed pages: %s\n", said(one(0, pid, mine, theirs + 56 * PAGE_WORDS, 16 << 12)));
    printf("read of read-only pages: %s\n", said(one(0, pid, mine, theirs + 128 * PAGE_WORDS, 8 << 12)));
    printf("write to read-only pages: %s\n", said(one(1, pid, mine, theirs + 128 * PAGE_WORDS, 8 << 12)));
    printf("read of unmapped pages: %s\n", said(one(0, pid, mine, theirs + 192 * PAGE_WORDS, 8 << 12)));
    printf("write up to unmapped pages: %s\n", said(one(1, pid, mine, theirs + 184 * PAGE_WORDS, 16 << 12)));
    printf("no process: %s\n", said(one(0, 0x3ffffff, mine, theirs, 4096)));
    struct iovec l = {mine, 4096}, r = {theirs, 4096};
    printf("flags: %s\n", said(process_vm_readv(pid, &l, 1, &r, 1, 1)));
    printf("no elements: %s\n", said(vm(0, pid, &l, 0, &r, 0)));
    printf("no array: %s\n", said(vm(0, pid, (void *)16, 1, &r, 1)));
    printf("too many: %s\n", said(vm(0, pid, &l, 1, &r, 5000)));
    end_child(pid);
    printf("ended: %s\n", said(one(0, pid, mine, theirs, 4096)));
    return 0;
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    pages = (count > 2 ? strtoull(arguments[2], NULL, 10) : 48) << 8;
    for (int i = 3; i < count; i++) by_number |= !strcmp(arguments[i], "by-number");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(way, "peer")) return peer(0);
    if (!strcmp(way, "busy")) return peer(1);
    if (!strcmp(way, "both")) return both();
    if (!strcmp(way, "vectors")) return vectors();
    if (!strcmp(way, "untouched")) return untouched();
    if (!strcmp(way, "refused")) return refuses();
    return 2;
}
