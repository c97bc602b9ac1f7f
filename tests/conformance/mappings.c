// Private anonymous mappings: placing, protecting, dropping, splitting, and the errors of each call.
#include "check.h"
#include <pthread.h>
#include <sys/syscall.h>

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)

static char *map(size_t bytes, int protection, int flags) {
    char *p = mmap(NULL, bytes, protection, ANON | flags, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}

static void placing(void) {
    char *p = map(10 * MIB, RW, MAP_NORESERVE);
    SHOW((uintptr_t)p % PAGE), SHOW(nonzero(p, 10 * MIB));
    fill(p, 10 * MIB, 1);
    SHOW(wrong(p, 10 * MIB, 1));
    CALL(munmap(p, 10 * MIB));
    SHOW(probe(p, 'r')), SHOW(probe(p + 5 * MIB, 'w'));
    p = map(1, RW, MAP_POPULATE);
    p[4095] = 1;
    CALL(munmap(p, 1));
    CALL(mmap(NULL, 0, RW, ANON, -1, 0));
    CALL(mmap(NULL, PAGE, RW, ANON, -1, 5));
    CALL(mmap((void *)5, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    CALL(mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0));
    CALL(mmap(NULL, (size_t)1 << 60, RW, ANON, -1, 0));
    CALL(mmap(NULL, PAGE, RW, MAP_PRIVATE, -1, 0));
    CALL(munmap((void *)PAGE, 0));
    CALL(munmap((void *)(PAGE + 1), PAGE));
    char *many[200];
    for (int i = 0; i < 200; i++) fill(many[i] = map((1 + i % 7) * PAGE, RW, 0), (1 + i % 7) * PAGE, i);
    size_t bad = 0;
    for (int i = 0; i < 200; i++) bad += wrong(many[i], (1 + i % 7) * PAGE, i) + munmap(many[i], (1 + i % 7) * PAGE);
    SHOW(bad);
}

static void splitting(void) {
    char *p = map(16 * PAGE, RW, 0);
    fill(p, 16 * PAGE, 2);
    CALL(munmap(p + 4 * PAGE, 4 * PAGE));
    SHOW(probe(p + 4 * PAGE, 'r')), SHOW(probe(p + 7 * PAGE, 'r'));
    SHOW(wrong(p, 4 * PAGE, 2)), SHOW(wrong(p + 8 * PAGE, 8 * PAGE, 2 + 8 * PAGE / 8));
    CALL(munmap(p + 2 * PAGE, 8 * PAGE)); // Across the hole.
    SHOW(wrong(p, 2 * PAGE, 2)), SHOW(probe(p + 9 * PAGE, 'r')), SHOW(probe(p + 10 * PAGE, 'r'));
    CALL(munmap(p + 2 * PAGE, 8 * PAGE)); // Nothing is there: fine.
    CALL(munmap(p, 16 * PAGE));
    p = map(64 * PAGE, RW, 0);
    for (int i = 0; i < 64; i += 2) MUST(!munmap(p + i * PAGE, PAGE));
    size_t faults = 0;
    for (int i = 0; i < 64; i++) faults += probe(p + i * PAGE, 'w') != 0;
    SHOW(faults);
    CALL(munmap(p, 64 * PAGE - 100));
    SHOW(probe(p + 63 * PAGE, 'r'));
}

// Reserve inaccessibly, then commit with MAP_FIXED or mprotect, as the JVM and V8 do it.
static void reserving(void) {
    size_t reserved = (size_t)1 << 36;
    char *p = map(reserved, PROT_NONE, MAP_NORESERVE);
    SHOW(probe(p, 'r')), SHOW(probe(p + reserved - 1, 'r'));
    char *commit = p + ((size_t)5 << 30);
    SHOW(mmap(commit, 4 * MIB, RW, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == commit);
    SHOW(nonzero(commit, 4 * MIB)), fill(commit, 4 * MIB, 3);
    CALL(mprotect(p + reserved - MIB, MIB, RW));
    fill(p + reserved - MIB, MIB, 4);
    SHOW(wrong(commit, 4 * MIB, 3)), SHOW(wrong(p + reserved - MIB, MIB, 4));
    SHOW(mmap(commit + MIB, MIB, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == commit + MIB); // Uncommit.
    SHOW(probe(commit + MIB, 'r'));
    SHOW(mmap(commit + MIB, MIB, RW, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == commit + MIB);
    SHOW(nonzero(commit + MIB, MIB)), SHOW(wrong(commit, MIB, 3)), SHOW(wrong(commit + 2 * MIB, 2 * MIB, 3 + 2 * MIB / 8));
    SHOW(mmap(commit, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED), SHOW(errno == EEXIST);
    CALL(munmap(p, reserved));
    SHOW(probe(commit, 'r'));
    SHOW(mmap(commit, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == commit), SHOW(nonzero(commit, PAGE));
    SHOW(mmap(commit + PAGE, PAGE, RW, ANON, -1, 0) == commit + PAGE); // A wish for a free place is granted.
    CALL(munmap(commit, 2 * PAGE));
}

static void protecting(void) {
    char *p = map(32 * PAGE, RW, 0);
    fill(p, 32 * PAGE, 5);
    CALL(mprotect(p, 32 * PAGE, PROT_READ));
    SHOW(probe(p + 3 * PAGE, 'r')), SHOW(probe(p + 3 * PAGE, 'w')), SHOW(wrong(p, 32 * PAGE, 5));
    CALL(mprotect(p + 8 * PAGE, 8 * PAGE, PROT_NONE));
    SHOW(probe(p + 8 * PAGE, 'r')), SHOW(probe(p + 7 * PAGE, 'r')), SHOW(probe(p + 16 * PAGE, 'r'));
    CALL(mprotect(p, 32 * PAGE, RW));
    SHOW(wrong(p, 32 * PAGE, 5));
    CALL(mprotect(p + 1, PAGE, RW)), CALL(mprotect(p, PAGE, 0x40)), CALL(mprotect(p, 0, RW));
    CALL(pkey_mprotect(p, 16 * PAGE, PROT_READ, 15)), SHOW(probe(p, 'w')); // No such key: nothing is changed.
    MUST(!munmap(p + 16 * PAGE, PAGE));
    CALL(pkey_mprotect(p + 16 * PAGE, PAGE, PROT_READ, 15));
    CALL(mprotect(p + 14 * PAGE, 6 * PAGE, PROT_READ)); // A hole: what lies before it is changed.
    SHOW(probe(p + 14 * PAGE, 'w')), SHOW(probe(p + 18 * PAGE, 'w'));
    CALL(mprotect(p + 16 * PAGE, PAGE, RW));
    CALL(munmap(p, 32 * PAGE));
    unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3}; // mov eax, 42; ret
    for (int round = 0; round < 2; round++) {
        char *jit = map(8 * PAGE, round ? RW | PROT_EXEC : RW, 0);
        for (int i = 0; i < 8; i++) memcpy(jit + i * PAGE, code, sizeof code), jit[i * PAGE + 1] = 40 + i;
        if (!round) SHOW(probe(jit, 'x')), CALL(mprotect(jit, 8 * PAGE, PROT_READ | PROT_EXEC));
        int sum = 0;
        for (int i = 0; i < 8; i++) sum += ((int (*)(void))(jit + i * PAGE))();
        SHOW(sum), SHOW(probe(jit, 'w'));
        CALL(munmap(jit, 8 * PAGE));
    }
    // Guard pages in a large mapping.
    char *guarded = map(24 * MIB, RW, 0);
    fill(guarded, 24 * MIB, 6);
    for (int i = 0; i < 24; i++) MUST(!mprotect(guarded + i * MIB, PAGE, PROT_NONE));
    size_t bad = 0;
    for (int i = 0; i < 24; i++) bad += probe(guarded + i * MIB, 'r') != SIGSEGV;
    for (int i = 0; i < 24; i++) MUST(!mprotect(guarded + i * MIB, PAGE, RW));
    SHOW(bad), SHOW(wrong(guarded, 24 * MIB, 6));
    CALL(munmap(guarded, 24 * MIB));
}

static void advising(void) {
    char *p = map(16 * MIB, RW, 0);
    fill(p, 16 * MIB, 7);
    CALL(madvise(p + 4 * MIB, 4 * MIB, MADV_DONTNEED));
    SHOW(nonzero(p + 4 * MIB, 4 * MIB)), SHOW(wrong(p, 4 * MIB, 7)), SHOW(wrong(p + 8 * MIB, 8 * MIB, 7 + 8 * MIB / 8));
    CALL(madvise(p, 16 * MIB, MADV_HUGEPAGE)), CALL(madvise(p, 16 * MIB, MADV_NOHUGEPAGE));
    CALL(madvise(p, 16 * MIB, MADV_WILLNEED)), CALL(madvise(p, 16 * MIB, MADV_SEQUENTIAL));
    CALL(madvise(p, 16 * MIB, MADV_RANDOM)), CALL(madvise(p, 16 * MIB, MADV_NORMAL));
    CALL(madvise(p, 16 * MIB, MADV_COLD)), CALL(madvise(p, MIB, MADV_PAGEOUT));
    CALL(madvise(p, MIB, MADV_DONTDUMP)), CALL(madvise(p, MIB, MADV_DODUMP));
    CALL(madvise(p, MIB, 22 /* MADV_POPULATE_READ */)), CALL(madvise(p + 4 * MIB, MIB, 23 /* MADV_POPULATE_WRITE */));
    CALL(madvise(p, MIB, MADV_REMOVE)), CALL(madvise(p, MIB, 9999)), CALL(madvise(p + 1, MIB, MADV_DONTNEED));
    CALL(madvise(p, 0, MADV_DONTNEED));
    SHOW(wrong(p, 4 * MIB, 7)), SHOW(wrong(p + 8 * MIB, 8 * MIB, 7 + 8 * MIB / 8));
    CALL(madvise(p + 8 * MIB, 100, MADV_DONTNEED)); // Rounds up to a page.
    SHOW(nonzero(p + 8 * MIB, PAGE)), SHOW(wrong(p + 8 * MIB + PAGE, PAGE, 7 + (8 * MIB + PAGE) / 8));
    // After MADV_FREE a page holds the old content or zeros, and takes new content.
    CALL(madvise(p, 2 * MIB, MADV_FREE));
    size_t neither = 0;
    for (size_t i = 0; i < 2 * MIB / 8; i++) {
        uint64_t word = ((uint64_t *)p)[i];
        neither += word != 0 && word != mix(7 + i);
    }
    SHOW(neither);
    fill(p, 2 * MIB, 8);
    SHOW(wrong(p, 2 * MIB, 8));
    MUST(!munmap(p + 10 * MIB, MIB));
    CALL(madvise(p + 9 * MIB, 4 * MIB, MADV_DONTNEED)); // A hole: told, but the rest is done.
    SHOW(nonzero(p + 12 * MIB, MIB));
    SHOW(posix_madvise(p, MIB, POSIX_MADV_DONTNEED)), SHOW(wrong(p, MIB, 8)), SHOW(posix_madvise(p, MIB, 77));
    SHOW(posix_madvise(p, MIB, POSIX_MADV_WILLNEED));
    CALL(mprotect(p, MIB, PROT_READ)), CALL(madvise(p, MIB, MADV_DONTNEED));
    SHOW(nonzero(p, MIB)), SHOW(probe(p, 'w'));
    CALL(munmap(p, 16 * MIB));
    CALL(madvise(p, MIB, MADV_DONTNEED));
}

// What the kernel says that is locked, in KiB.
static long locked_kib(void) {
    long kib = -1;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
    if (status) fclose(status);
    return kib;
}

static void residency(void) {
    char *p = map(64 * PAGE, RW, 0);
    unsigned char vector[64];
    CALL(mlock(p + 10, 8 * PAGE));
    fill(p, 64 * PAGE, 9);
    CALL(mincore(p, 8 * PAGE, vector));
    size_t here = 0;
    for (int i = 0; i < 8; i++) here += vector[i] & 1;
    SHOW(here), SHOW(wrong(p, 64 * PAGE, 9));
    CALL(madvise(p, PAGE, MADV_DONTNEED)), CALL(madvise(p, PAGE, MADV_FREE)), SHOW(wrong(p, PAGE, 9));
    CALL(msync(p, PAGE, MS_INVALIDATE)), CALL(msync(p + 32 * PAGE, PAGE, MS_INVALIDATE));
    CALL(munlock(p, 64 * PAGE));
    CALL(mlock2(p, PAGE, MLOCK_ONFAULT)), CALL(mlock2(p, PAGE, 8)), CALL(munlock(p, PAGE));
    CALL(madvise(p, PAGE, MADV_DONTNEED)), SHOW(nonzero(p, PAGE));
    CALL(mincore(p + 1, PAGE, vector));
    CALL(msync(p, 64 * PAGE, MS_SYNC)), CALL(msync(p, PAGE, MS_ASYNC | MS_SYNC)), CALL(msync(p + 1, PAGE, MS_SYNC));
    MUST(!munmap(p + 8 * PAGE, PAGE));
    CALL(mincore(p + 7 * PAGE, 3 * PAGE, vector)), CALL(msync(p, 64 * PAGE, MS_SYNC));
    CALL(mlock(p + 7 * PAGE, 3 * PAGE)), CALL(munlock(p + 7 * PAGE, 3 * PAGE));
    CALL(munmap(p, 64 * PAGE));
    // What lies behind a hole stays as it is.
    p = map(8 * PAGE, RW, 0);
    fill(p, 8 * PAGE, 11);
    MUST(!munmap(p + 2 * PAGE, PAGE));
    CALL(mlock(p, 8 * PAGE)), CALL(madvise(p, PAGE, MADV_DONTNEED)), CALL(madvise(p + 5 * PAGE, PAGE, MADV_DONTNEED));
    CALL(munlock(p, 2 * PAGE)), CALL(mprotect(p + 4 * PAGE, 4 * PAGE, PROT_READ));
    CALL(madvise(p, 8 * PAGE, MADV_POPULATE_WRITE));
    CALL(munmap(p, 8 * PAGE));
    CALL(mlockall(0)), CALL(mlockall(0x100)), CALL(munlockall());
    char *locked = map(16 * PAGE, RW, MAP_LOCKED);
    fill(locked, 16 * PAGE, 10);
    SHOW(wrong(locked, 16 * PAGE, 10)), CALL(madvise(locked, PAGE, MADV_DONTNEED));
    CALL(munmap(locked, 16 * PAGE));
    // What may not be accessed is locked although its pages do not come, and not any more when it is unmapped.
    char *closed = map(16 * PAGE, PROT_NONE, 0);
    CALL(mlock(closed, 16 * PAGE)), CALL(madvise(closed, PAGE, MADV_DONTNEED));
    CALL(mprotect(closed, 16 * PAGE, RW)), fill(closed, 16 * PAGE, 13), CALL(madvise(closed, PAGE, MADV_DONTNEED));
    SHOW(wrong(closed, 16 * PAGE, 13)), CALL(munmap(closed, 16 * PAGE)), SHOW(locked_kib());
    closed = map(16 * PAGE, PROT_NONE, MAP_LOCKED);
    CALL(madvise(closed, PAGE, MADV_DONTNEED)), CALL(munlock(closed, PAGE)), CALL(madvise(closed, PAGE, MADV_DONTNEED));
    CALL(munmap(closed, 16 * PAGE)), SHOW(locked_kib());
    // A lock goes along with a mapping that moves, also to where shared memory was.
    char *there = mmap(NULL, 16 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    locked = map(16 * PAGE, RW, MAP_LOCKED), fill(locked, 16 * PAGE, 14);
    SHOW(mremap(locked, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there), SHOW(locked_kib());
    CALL(madvise(there, PAGE, MADV_DONTNEED)), SHOW(wrong(there, 16 * PAGE, 14)), CALL(munmap(there, 16 * PAGE)), SHOW(locked_kib());
}

// Files and shared memory mapped over a part of our own mapping, and back.
static void foreign(void) {
    char path[] = "/tmp/conformance-XXXXXX";
    int fd = mkstemp(path);
    MUST(fd >= 0), unlink(path);
    static char content[8 * 4096];
    fill(content, sizeof content, 11);
    MUST(write(fd, content, sizeof content) == (ssize_t)sizeof content);
    char *p = map(32 * PAGE, RW, 0);
    fill(p, 32 * PAGE, 12);
    SHOW(mmap(p + 8 * PAGE, 8 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == p + 8 * PAGE);
    SHOW(wrong(p + 8 * PAGE, 8 * PAGE, 11)), SHOW(wrong(p, 8 * PAGE, 12));
    SHOW(wrong(p + 16 * PAGE, 16 * PAGE, 12 + 16 * PAGE / 8));
    p[8 * PAGE] = 'Z';
    char byte = 0;
    MUST(pread(fd, &byte, 1, 0) == 1), SHOW(byte);
    CALL(mprotect(p + 4 * PAGE, 8 * PAGE, PROT_READ)); // Across both.
    SHOW(probe(p + 4 * PAGE, 'w')), SHOW(probe(p + 11 * PAGE, 'w')), SHOW(probe(p + 12 * PAGE, 'w'));
    CALL(mprotect(p, 32 * PAGE, RW));
    CALL(msync(p, 32 * PAGE, MS_SYNC)), CALL(madvise(p + 8 * PAGE, PAGE, MADV_DONTNEED)), SHOW(p[8 * PAGE]);
    SHOW(mmap(p + 10 * PAGE, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 4 * PAGE) == p + 10 * PAGE);
    SHOW(wrong(p + 10 * PAGE, 2 * PAGE, 11 + 4 * PAGE / 8));
    CALL(mmap(p, PAGE, RW, MAP_SHARED | MAP_FIXED, 12345, 0)); // Refused: what is there stays.
    SHOW(wrong(p, PAGE, 12));
    CALL(munmap(p + 9 * PAGE, 2 * PAGE));
    SHOW(probe(p + 9 * PAGE, 'r')), SHOW(probe(p + 10 * PAGE, 'r')), SHOW(probe(p + 11 * PAGE, 'r'));
    SHOW(mmap(p + 8 * PAGE, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == p + 8 * PAGE);
    SHOW(nonzero(p + 8 * PAGE, 8 * PAGE)), fill(p + 8 * PAGE, 8 * PAGE, 13), SHOW(wrong(p + 8 * PAGE, 8 * PAGE, 13));
    SHOW(wrong(p, 8 * PAGE, 12)), SHOW(wrong(p + 16 * PAGE, 16 * PAGE, 12 + 16 * PAGE / 8));
    SHOW(mmap(p, 4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p), SHOW(nonzero(p, 4 * PAGE));
    // What is refused of private memory is done of shared memory.
    fill(p, 4 * PAGE, 14);
    CALL(madvise(p, 2 * PAGE, MADV_REMOVE)), SHOW(nonzero(p, 2 * PAGE)), SHOW(wrong(p + 2 * PAGE, 2 * PAGE, 14 + 2 * PAGE / 8));
    CALL(madvise(p + 3 * PAGE, 2 * PAGE, MADV_REMOVE)), SHOW(nonzero(p + 3 * PAGE, PAGE)), CALL(madvise(p, PAGE, 9999));
    CALL(munmap(p, 32 * PAGE)), SHOW(probe(p, 'r')), SHOW(probe(p + 31 * PAGE, 'r'));
    close(fd);
}

// A mapping across an end grows: in place, and where something is in its way; to a place across an end, too.
static void growing_across(char *p, size_t all) {
    SHOW(mmap(p, all, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p), fill(p, all, 16);
    SHOW(mremap(p, all, all + MIB, 0) == p), SHOW(wrong(p, all, 16)), SHOW(nonzero(p + all, MIB));
    fill(p + all, MIB, 17);
    MUST(mmap(p + all + MIB, PAGE, PROT_READ, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + all + MIB);
    CALL(mremap(p, all + MIB, all + 2 * MIB, 0));
    char *q = mremap(p, all + MIB, all + 2 * MIB, MREMAP_MAYMOVE);
    SHOW(q != MAP_FAILED && q != p), SHOW(probe(p, 'r')), SHOW(probe(p + all + MIB - 1, 'r'));
    SHOW(wrong(q, all, 16)), SHOW(wrong(q + all, MIB, 17)), SHOW(nonzero(q + all + MIB, MIB));
    char *r = mremap(q, all + 2 * MIB, 2 * all, MREMAP_MAYMOVE);
    SHOW(r != MAP_FAILED), SHOW(wrong(r, all, 16)), SHOW(wrong(r + all, MIB, 17)), SHOW(nonzero(r + all + MIB, all - MIB));
    // Back across, to a place that is larger; from there, elsewhere, larger again.
    MUST(!munmap(p + all + MIB, PAGE));
    SHOW(mremap(r, 2 * all, 2 * all + MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p), SHOW(probe(r, 'r'));
    SHOW(wrong(p, all, 16)), SHOW(wrong(p + all, MIB, 17)), SHOW(nonzero(p + all + MIB, all));
    MUST(!mprotect(p, 2 * all + MIB, PROT_READ));
    q = map(4 * all, RW, 0), fill(q, 4 * all, 18);
    SHOW(mremap(p, 2 * all + MIB, 3 * all, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q), SHOW(probe(q, 'w')), SHOW(probe(q + 3 * all - 1, 'w'));
    SHOW(wrong(q, all, 16)), SHOW(nonzero(q + all + MIB, 2 * all - MIB)), SHOW(wrong(q + 3 * all, all, 18 + 3 * all / 8)), SHOW(probe(p, 'r'));
    MUST(!munmap(q, 4 * all));
    // The old place stays, empty; of a file, what is mapped beyond is its next pages.
    SHOW(mmap(p, all, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p), fill(p, all, 19);
    q = mremap(p, all, all, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    SHOW(q != MAP_FAILED && q != p), SHOW(wrong(q, all, 19)), SHOW(nonzero(p, all)), SHOW(probe(p, 'w')), SHOW(probe(p + all - 1, 'w'));
    FILE *file = tmpfile();
    MUST(file && !ftruncate(fileno(file), 2 * all) && !munmap(q, all));
    SHOW(mmap(p, all, RW, MAP_SHARED | MAP_FIXED, fileno(file), 0) == p), fill(p, all, 20);
    MUST(mmap(p + all, PAGE, PROT_READ, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + all);
    q = mremap(p, all, all + MIB, MREMAP_MAYMOVE);
    SHOW(q != MAP_FAILED), SHOW(wrong(q, all, 20)), SHOW(nonzero(q + all, MIB)), SHOW(probe(p, 'r')), SHOW(probe(p + all - 1, 'r'));
    r = mremap(q, all + MIB, 2 * all, MREMAP_MAYMOVE);
    SHOW(r != MAP_FAILED), SHOW(wrong(r, all, 20)), SHOW(nonzero(r + all, all));
    CALL(munmap(r, 2 * all)), CALL(munmap(p + all, PAGE)), fclose(file);
}

// Across an end of the far range (`FAR_BASE` and `FAR_PAGES` of the pager), where natively nothing lies: on one side memory is ours, on the
// other the kernel's.
static void across(char *end) {
    size_t all = 8 * MIB;
    char *p = end - all / 2, *near = end - 2 * PAGE;
    SHOW(mmap(p, all, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p);
    fill(p, all, 10);
    CALL(mmap(p, all, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0)), CALL(mmap(near, 4 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    SHOW(wrong(p, all, 10));
    CALL(mprotect(end - MIB, 2 * MIB, PROT_READ));
    SHOW(probe(end - PAGE, 'w')), SHOW(probe(end, 'w')), SHOW(probe(end - MIB - PAGE, 'w')), SHOW(probe(end + MIB, 'w'));
    CALL(mprotect(p, all, RW)), CALL(mprotect(p, all, 0x40)), SHOW(wrong(p, all, 10));
    CALL(madvise(end - MIB, 2 * MIB, MADV_DONTNEED)), CALL(madvise(end - MIB, 2 * MIB, 9999));
    SHOW(nonzero(end - MIB, 2 * MIB)), SHOW(wrong(p, 3 * MIB, 10)), SHOW(wrong(end + MIB, 3 * MIB, 10 + 5 * MIB / 8));
    CALL(madvise(near, 4 * PAGE, 23 /* MADV_POPULATE_WRITE */));
    unsigned char local[4] = {0};
    CALL(mincore(near, 4 * PAGE, local)), SHOW((local[0] & 1) + (local[1] & 1) + (local[2] & 1) + (local[3] & 1));
    CALL(mlock(near, 4 * PAGE)), CALL(munlock(near, 4 * PAGE)), CALL(msync(near, 4 * PAGE, MS_SYNC));
    // A hole behind the end: calls that stop there have done what lies before it, the others all.
    fill(near, 4 * PAGE, 11);
    MUST(!munmap(end, PAGE));
    CALL(mprotect(near, 4 * PAGE, PROT_READ)), SHOW(probe(end - PAGE, 'w')), SHOW(probe(end, 'r')), SHOW(probe(end + PAGE, 'w'));
    CALL(mprotect(near, 2 * PAGE, RW)), SHOW(wrong(near, 2 * PAGE, 11)), SHOW(wrong(end + PAGE, PAGE, 11 + 3 * PAGE / 8));
    CALL(madvise(near, 4 * PAGE, MADV_DONTNEED)), SHOW(nonzero(near, 2 * PAGE)), SHOW(nonzero(end + PAGE, PAGE));
    CALL(mincore(near, 4 * PAGE, local)), CALL(msync(near, 4 * PAGE, MS_ASYNC)), CALL(mlock(near, 4 * PAGE)), CALL(munlock(near, 2 * PAGE));
    // What is mapped over it is whole; of a file, each part has its own place.
    SHOW(mmap(near, 4 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == near), SHOW(nonzero(near, 4 * PAGE));
    FILE *file = tmpfile();
    MUST(file && !ftruncate(fileno(file), 6 * PAGE));
    char *other = mmap(NULL, 6 * PAGE, RW, MAP_SHARED, fileno(file), 0);
    fill(other, 6 * PAGE, 12);
    SHOW(mmap(near, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, fileno(file), PAGE) == near), SHOW(wrong(near, 4 * PAGE, 12 + PAGE / 8));
    fill(near, 4 * PAGE, 13), SHOW(wrong(other + PAGE, 4 * PAGE, 13));
    CALL(mmap(near, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, -1, 0)), CALL(munmap(near, 4 * PAGE));
    SHOW(probe(end - PAGE, 'r')), SHOW(probe(end, 'r')), SHOW(wrong(other + PAGE, 4 * PAGE, 13));
    munmap(other, 6 * PAGE), fclose(file);
    // Content moves across, shrinks there, and moves back.
    char *from = map(all, RW, 0), *to = map(all, RW, 0);
    fill(from, all, 14), fill(to, all, 15);
    SHOW(mremap(from, all, all, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p), SHOW(wrong(p, all, 14)), SHOW(probe(from, 'r'));
    CALL(mremap(p, all, all, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE));
    SHOW(mremap(p, all, all - MIB, 0) == p), SHOW(wrong(p, all - MIB, 14)), SHOW(probe(p + all - MIB, 'r'));
    SHOW(mremap(p, all - MIB, all - 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    SHOW(wrong(to, all - 2 * MIB, 14)), SHOW(wrong(to + all - 2 * MIB, 2 * MIB, 15 + 6 * MIB / 8));
    SHOW(probe(p, 'r')), SHOW(probe(end - PAGE, 'r')), SHOW(probe(end, 'r'));
    CALL(munmap(to, all)), CALL(munmap(p, all)); // Nothing is there any more: fine.
    growing_across(p, all);
    SHOW(syscall(SYS_mmap, p, all, PROT_NONE, ANON | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0) == (long)p);
    CALL(syscall(SYS_mprotect, near, 4 * PAGE, RW)), SHOW(nonzero(near, 4 * PAGE)), SHOW(probe(near - 1, 'r'));
    CALL(munmap(p, (size_t)1 << 48)), SHOW(nonzero(near, 4 * PAGE));
    CALL(syscall(SYS_munmap, p, all)), SHOW(probe(near, 'r')), SHOW(probe(end, 'r'));
}

// Mappings in the place of others, while one thread reads there and one has the kernel read: each sees what was there or what comes, never neither.
static char *replaced;
static volatile int replaces;
static const size_t replaced_bytes = 16 * PAGE;

static void *reads(void *seen) {
    while (replaces)
        for (size_t at = 0; at < replaced_bytes; at += PAGE) ((volatile char *)seen)[(unsigned char)replaced[at]] = 1;
    return NULL;
}

static void *hands_out(void *failed) {
    static char back[4 * PAGE];
    int ends[2];
    MUST(!pipe(ends));
    while (replaces) {
        ssize_t written = write(ends[1], replaced, sizeof back);
        if (written != sizeof back) *(volatile int *)failed = 1;
        if (written > 0) MUST(read(ends[0], back, written) == written);
    }
    close(ends[0]), close(ends[1]);
    return NULL;
}

// What threads have seen of `how` to replace; `may_see`: what they may see.
static void beside_readers(const char *how, int rounds, void (*replace)(void), const char *may_see, int calls_may_fail) {
    static char seen[256];
    int failed = 0;
    memset(seen, 0, sizeof seen);
    pthread_t reader, writer;
    replaces = 1;
    MUST(!pthread_create(&reader, NULL, reads, seen) && !pthread_create(&writer, NULL, hands_out, &failed));
    while (rounds--) replace();
    replaces = 0;
    MUST(!pthread_join(reader, NULL) && !pthread_join(writer, NULL));
    int others = 0;
    for (int i = 0; i < 256; i++) others += seen[i] && !memchr(may_see, i, 2);
    printf("%s: seen otherwise %d, calls that failed %d\n", how, others, failed && !calls_may_fail);
}

static int replaced_file;

static void by_anonymous(void) {
    MUST(mmap(replaced, replaced_bytes, RW, ANON | MAP_FIXED, -1, 0) == replaced);
    memset(replaced + 4 * PAGE, 1, PAGE);
}

static void by_read_only(void) {
    MUST(mmap(replaced, replaced_bytes, PROT_READ, ANON | MAP_FIXED, -1, 0) == replaced);
    by_anonymous();
}

static void by_shared(void) {
    MUST(mmap(replaced, replaced_bytes, RW, MAP_SHARED | MAP_FIXED, replaced_file, 0) == replaced);
    by_anonymous();
}

static void by_private_file(void) {
    MUST(mmap(replaced, replaced_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, replaced_file, 0) == replaced);
}

static void by_dropping(void) {
    MUST(!madvise(replaced, replaced_bytes, MADV_DONTNEED));
    memset(replaced + 4 * PAGE, 1, PAGE);
}

static void replacing(void) {
    replaced = map(replaced_bytes, RW, 0);
    replaced_file = memfd_create("replaced", 0);
    MUST(replaced_file >= 0 && !ftruncate(replaced_file, replaced_bytes));
    char *content = mmap(NULL, replaced_bytes, RW, MAP_SHARED, replaced_file, 0);
    memset(content, 1, replaced_bytes), memset(replaced, 1, replaced_bytes);
    const int rounds = 1000;
    beside_readers("anonymous", rounds, by_anonymous, "\0\1", 0);
    // On the inline path the zeros cannot be written where the kernel works on a page that is read-only by then.
    beside_readers("read-only", rounds, by_read_only, "\0\1", 1);
    beside_readers("shared", rounds, by_shared, "\0\1", 0);
    beside_readers("dropping", rounds, by_dropping, "\0\1", 0);
    beside_readers("private file", rounds, by_private_file, "\0\1", 0);
    // Over a file only: what is there is one and the same.
    beside_readers("the same file", rounds, by_private_file, "\1\1", 0);
    CALL(munmap(content, replaced_bytes)), CALL(munmap(replaced, replaced_bytes)), CALL(close(replaced_file));
}

int main(void) {
    replacing();
    placing();
    splitting();
    reserving();
    protecting();
    advising();
    residency();
    foreign();
    across((char *)0x480000000000);
    across((char *)0x540000000000);
}
