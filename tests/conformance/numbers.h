// Memory calls by their numbers, on evicted pages: through libc's `syscall`, or with INSTRUCTION by the instruction itself.
#pragma once
#include "far.h"
#include "newer_calls.h"
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#ifdef INSTRUCTION
// As libc's `syscall`: -1 and errno for an error.
static long by_number(long number, long a, long b, long c, long d, long e, long f) {
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    if (answer < 0 && answer > -4096) {
        errno = -answer;
        return -1;
    }
    return answer;
}
#define N6(number, a, b, c, d, e, f, ...) \
    by_number(SYS_##number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define N(number, ...) N6(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#else
#define N(number, ...) syscall(SYS_##number, __VA_ARGS__)
#endif

// New memory, with a pattern in it, evicted. A mapping whose place the kernel chooses is far memory through `syscall` only.
static char *fresh(size_t bytes, uint64_t seed) {
#ifdef INSTRUCTION
    char *at = mmap(NULL, bytes, RW, ANON, -1, 0);
#else
    char *at = (char *)N(mmap, NULL, bytes, RW, ANON, -1, 0L);
#endif
    MUST(at != MAP_FAILED);
    fill(at, bytes, seed);
    chill();
    return at;
}

static void dropping(void) {
    char *p = fresh(8 * MIB, 1);
    CALL(N(madvise, p, 4 * MIB, MADV_DONTNEED));
    SHOW(nonzero(p, 4 * MIB)), SHOW(wrong(p + 4 * MIB, 4 * MIB, 1 + 4 * MIB / 8));
    CALL(N(madvise, p + 4 * MIB, 4 * MIB, MADV_FREE)), CALL(N(madvise, p, MIB, MADV_HUGEPAGE));
    CALL(N(madvise, p + 1, MIB, MADV_DONTNEED)), CALL(N(madvise, p, MIB, 12345)), CALL(N(madvise, p, 0, MADV_DONTNEED));
    fill(p, 8 * MIB, 2), chill();
    CALL(N(munmap, p, 8 * MIB));
    SHOW(probe(p, 'r'));
    char *q = (char *)N(mmap, p, 8 * MIB, RW, ANON | MAP_FIXED, -1, 0L);
    SHOW(q == p), SHOW(nonzero(q, 8 * MIB));
    fill(q, 8 * MIB, 3), chill();
    SHOW(N(mmap, q + MIB, MIB, RW, ANON | MAP_FIXED, -1, 0L) == (long)(q + MIB));
    SHOW(nonzero(q + MIB, MIB)), SHOW(wrong(q, MIB, 3)), SHOW(wrong(q + 2 * MIB, 6 * MIB, 3 + 2 * MIB / 8));
    CALL(N(munmap, q, 8 * MIB)), CALL(N(munmap, q, 8 * MIB)), CALL(N(munmap, q + 1, PAGE)), CALL(N(munmap, q, 0));
}

static void moving(void) {
    char *p = fresh(8 * MIB, 4);
    char *q = (char *)N(mremap, p, 8 * MIB, 12 * MIB, MREMAP_MAYMOVE, NULL);
    SHOW(q != MAP_FAILED), SHOW(wrong(q, 8 * MIB, 4)), SHOW(nonzero(q + 8 * MIB, 4 * MIB));
    fill(q, 12 * MIB, 5), chill();
    p = mmap(NULL, 16 * MIB, PROT_NONE, ANON, -1, 0);
    SHOW(N(mremap, q, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p) == (long)p);
    SHOW(wrong(p, 4 * MIB, 5)), SHOW(wrong(q + 4 * MIB, 8 * MIB, 5 + 4 * MIB / 8)), SHOW(probe(q, 'r'));
    SHOW(N(mremap, p, 4 * MIB, PAGE, 0, NULL) == (long)p), SHOW(probe(p + PAGE, 'r'));
    CALL(N(mremap, q + 4 * MIB, MIB, 0, MREMAP_MAYMOVE, NULL)), CALL(N(mremap, q + 4 * MIB, MIB, MIB, 64, NULL));
    MUST(!munmap(p, 16 * MIB) && !munmap(q + 4 * MIB, 8 * MIB));
}

static void protecting(void) {
    char *p = fresh(4 * MIB, 6);
    CALL(N(mprotect, p, 2 * MIB, PROT_READ));
    SHOW(probe(p, 'r')), SHOW(probe(p, 'w')), SHOW(probe(p + 2 * MIB, 'w')), SHOW(wrong(p, 4 * MIB, 6));
    CALL(N(pkey_mprotect, p, 2 * MIB, PROT_NONE, -1));
    SHOW(probe(p, 'r'));
    chill();
    CALL(N(mprotect, p, 2 * MIB, RW)), CALL(N(mprotect, p, PAGE, 0x1000)), CALL(N(mprotect, p + 7, PAGE, RW));
    SHOW(wrong(p, 4 * MIB, 6));
    CALL(N(mlock, p, 8 * PAGE)), CALL(N(mlock2, p + 8 * PAGE, 8 * PAGE, 1)), CALL(N(mlock2, p, PAGE, 77));
    CALL(N(madvise, p, PAGE, MADV_DONTNEED));
    chill();
    unsigned char bits[4] = {0}; // Locked pages are local, whatever leaves.
    CALL(N(mincore, p, PAGE, bits)), SHOW(bits[0] & 1);
    CALL(N(munlock, p, 16 * PAGE)), CALL(N(munlockall, 0));
    SHOW(wrong(p, 4 * MIB, 6));
    CALL(N(mincore, p, PAGE, NULL)), CALL(N(mincore, p, PAGE, -1L)), CALL(N(mincore, p + 1, PAGE, bits));
    unsigned char *vector = (unsigned char *)fresh(PAGE, 7); // An answer that lands in far memory, about near memory.
    CALL(N(mincore, near_room, 4 * PAGE, vector));
    CALL(N(msync, p, MIB, MS_ASYNC)), CALL(N(msync, p, MIB, MS_ASYNC | MS_SYNC)), CALL(N(msync, p, MIB, 64));
    MUST(!munmap(p, 4 * MIB) && !munmap(vector, PAGE));
    CALL(N(mincore, p, PAGE, bits)), CALL(N(msync, p, MIB, MS_ASYNC)), CALL(N(mprotect, p, MIB, RW));
}

// Nothing of libc's may move the break meanwhile: nothing is printed.
static void breaking(void) {
    char *start = (char *)N(brk, 0), *moved = (char *)N(brk, start + 4 * MIB);
    size_t first = 99, dropped = 99, again = 99;
    if (moved == start + 4 * MIB) {
        first = nonzero(start, 4 * MIB);
        fill(start, 4 * MIB, 8), chill();
        again = wrong(start, 4 * MIB, 8);
        MUST((char *)N(brk, start + PAGE) == start + PAGE && (char *)N(brk, start + 4 * MIB) == moved);
        dropped = nonzero(start + PAGE, 4 * MIB - PAGE);
    }
    long refused = N(brk, 1) == (long)moved;
    long back = (char *)N(brk, start) == start;
    SHOW(moved - start), SHOW(first), SHOW(again), SHOW(dropped), SHOW(refused), SHOW(back);
}

static void advising_oneself(void) {
    char *p = fresh(2 * MIB, 9), *q = fresh(MIB, 10);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec ranges[3] = {{p, MIB}, {near_room, PAGE}, {q, MIB}};
    near_room[0] = 1;
    CALL(N(process_madvise, self, ranges, 3, MADV_DONTNEED, 0));
    SHOW(nonzero(p, MIB)), SHOW(near_room[0]), SHOW(nonzero(q, MIB)), SHOW(wrong(p + MIB, MIB, 9 + MIB / 8));
    fill(p, 2 * MIB, 9), chill();
    ranges[1] = (struct iovec){p + 1, PAGE};
    SHOW(N(process_madvise, self, ranges, 2, MADV_DONTNEED, 0)), SHOW(nonzero(p, MIB));
    CALL(N(process_madvise, self, ranges, 2, MADV_DONTNEED, 5)), CALL(N(process_madvise, -1, ranges, 2, MADV_COLD, 0));
    CALL(N(process_madvise, self, NULL, 1, MADV_COLD, 0)), CALL(N(process_madvise, self, ranges, 5000, MADV_DONTNEED, 0));
    // Another process keeps its memory, and so does this one.
    int pid = fork();
    if (!pid) pause();
    int other = syscall(SYS_pidfd_open, pid, 0);
    fill(p, MIB, 11), chill();
    CALL(N(process_madvise, other, ranges, 1, MADV_DONTNEED, 0));
    SHOW(wrong(p, MIB, 11));
    kill(pid, SIGKILL), waitpid(pid, NULL, 0), close(self), close(other);
    MUST(!munmap(p, 2 * MIB) && !munmap(q, MIB));
}

static void sealing(void) {
    char *p = fresh(4 * MIB, 12);
    CALL(N(mseal, p, MIB, 1)), CALL(N(mseal, p + 1, MIB, 0)), CALL(N(mseal, p, 0, 0)), CALL(N(mseal, p, -1L, 0));
    MUST(!munmap(p + 2 * MIB, PAGE));
    CALL(N(mseal, p, 4 * MIB, 0)); // A hole: nothing is sealed.
    CALL(N(mprotect, p, PAGE, PROT_READ)), CALL(N(mprotect, p, PAGE, RW));
    CALL(N(mseal, p, MIB, 0)), CALL(N(mseal, p, MIB, 0));
    chill();
    SHOW(wrong(p, 2 * MIB, 12));
    CALL(N(munmap, p, PAGE)), CALL(N(munmap, p + MIB - PAGE, 2 * PAGE)), CALL(N(mprotect, p, PAGE, PROT_READ));
    CALL(N(mprotect, p, PAGE, RW)), CALL(N(pkey_mprotect, p, PAGE, PROT_READ, -1));
    CALL(N(mremap, p, MIB, 2 * MIB, MREMAP_MAYMOVE, NULL)), CALL(N(mremap, p, MIB, MIB, 0, NULL));
    CALL(N(mremap, p, MIB, PAGE, 0, NULL)), CALL(N(mremap, p, 2 * MIB, 3 * MIB, MREMAP_MAYMOVE, NULL));
    CALL(N(mremap, p + MIB, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p));
    CALL(N(mmap, p, PAGE, RW, ANON | MAP_FIXED, -1, 0L)), CALL(N(mmap, p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0L));
    CALL(N(mlock, p, PAGE)), CALL(N(munlock, p, PAGE)), CALL(N(madvise, p, PAGE, MADV_WILLNEED));
    SHOW(wrong(p, 2 * MIB, 12));
    CALL(N(madvise, p, PAGE, MADV_DONTNEED)), SHOW(nonzero(p, PAGE)), SHOW(wrong(p + PAGE, MIB, 12 + PAGE / 8));
    MUST(!mprotect(p + MIB, MIB, PROT_READ));
    CALL(N(mseal, p + MIB, MIB, 0));
    chill();
    CALL(N(madvise, p + MIB, PAGE, MADV_DONTNEED)), CALL(N(madvise, p + MIB, PAGE, MADV_FREE));
    CALL(N(madvise, p + MIB, PAGE, MADV_DONTFORK)), CALL(N(madvise, p + MIB, PAGE, MADV_WIPEONFORK));
    CALL(N(madvise, p + MIB, PAGE, MADV_DOFORK)), CALL(N(madvise, p + MIB, PAGE, MADV_DONTDUMP));
    SHOW(wrong(p + MIB, MIB, 12 + MIB / 8));
    // By their names, and in a child.
    int pid = fork();
    if (!pid) {
        chill();
        int refused = munmap(p, PAGE) == -1 && mprotect(p, PAGE, PROT_READ) == -1 && errno == EPERM;
        refused &= mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EPERM;
        refused &= mmap(p, PAGE, RW, ANON | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EPERM;
        refused &= madvise(p + MIB, PAGE, MADV_DONTNEED) == -1 && errno == EPERM;
        _exit(refused * 2 + (wrong(p + MIB, MIB, 12 + MIB / 8) == 0));
    }
    int status = 0;
    waitpid(pid, &status, 0);
    SHOW(WEXITSTATUS(status));
}

static void sharing(void) {
    int segment = shmget(IPC_PRIVATE, 8 * PAGE, IPC_CREAT | 0600);
    MUST(segment >= 0);
    char *p = fresh(MIB, 13);
    CALL(N(shmat, segment, p, 0)), CALL(N(shmat, segment, p + 1, SHM_REMAP)), CALL(N(shmat, -1, p, SHM_REMAP));
    SHOW(N(shmat, segment, p + 4 * PAGE + 5, SHM_REMAP | SHM_RND) == (long)(p + 4 * PAGE));
    SHOW(nonzero(p + 4 * PAGE, 8 * PAGE)), SHOW(wrong(p, 4 * PAGE, 13));
    SHOW(wrong(p + 12 * PAGE, MIB - 12 * PAGE, 13 + 12 * PAGE / 8));
    fill(p + 4 * PAGE, 8 * PAGE, 14);
    char *elsewhere = shmat(segment, NULL, SHM_RDONLY);
    SHOW(wrong(elsewhere, 8 * PAGE, 14));
    CALL(N(shmdt, p + 5 * PAGE)), CALL(N(shmdt, p)), CALL(N(shmdt, p + 4 * PAGE)), CALL(N(shmdt, p + 4 * PAGE));
    SHOW(probe(p + 4 * PAGE, 'r')), SHOW(probe(p + 11 * PAGE, 'r')), SHOW(probe(p + 12 * PAGE, 'r'));
    SHOW(shmat(segment, p + 4 * PAGE, 0) == p + 4 * PAGE), SHOW(wrong(p + 4 * PAGE, 8 * PAGE, 14));
    CALL(shmdt(p + 4 * PAGE)), CALL(shmdt(elsewhere)), CALL(shmctl(segment, IPC_RMID, NULL));
    SHOW(mmap(p + 4 * PAGE, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == p + 4 * PAGE), SHOW(nonzero(p + 4 * PAGE, 8 * PAGE));
    fill(p, MIB, 15), chill();
    SHOW(wrong(p, MIB, 15));
    int file = open("/proc/self/exe", O_RDONLY);
    SHOW(N(mmap, p, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0L) == (long)p), SHOW(p[1] == 'E');
    CALL(N(munmap, p, PAGE)), SHOW(probe(p, 'r')), SHOW(wrong(p + PAGE, MIB - PAGE, 15 + PAGE / 8));
    close(file);
    MUST(!munmap(p, MIB));
}

int main(void) {
    dropping(), moving(), protecting(), breaking();
#ifndef INSTRUCTION
    advising_oneself(); // By the instruction it is refused on the inline path.
#endif
    sealing(), sharing();
    puts("done");
    return 0;
}
