// mremap in all its forms, contents checked.
#include "check.h"
#include <pthread.h>

#define RW (PROT_READ | PROT_WRITE)

static char *map(size_t bytes, int protection) {
    char *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}

// A mapping with room after it, so that it can grow in place.
static char *with_room(size_t bytes, size_t room) {
    char *p = map(bytes + room, RW);
    MUST(!munmap(p + bytes, room));
    return p;
}

static void in_place(void) {
    char *p = with_room(4 * MIB, 4 * MIB);
    fill(p, 4 * MIB, 1);
    SHOW(mremap(p, 4 * MIB, 4 * MIB, 0) == p);
    SHOW(mremap(p, 4 * MIB, 8 * MIB, 0) == p);
    SHOW(wrong(p, 4 * MIB, 1)), SHOW(nonzero(p + 4 * MIB, 4 * MIB));
    fill(p, 8 * MIB, 2);
    SHOW(mremap(p, 8 * MIB, MIB, 0) == p);
    SHOW(wrong(p, MIB, 2)), SHOW(probe(p + MIB, 'r')), SHOW(probe(p + 8 * MIB - 1, 'r'));
    SHOW(mremap(p, MIB, 2 * MIB, 0) == p), SHOW(nonzero(p + MIB, MIB));
    char *blocker = mmap(p + 2 * MIB, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CALL(mprotect(blocker, PAGE, PROT_READ));
    CALL(mremap(p, 2 * MIB, 4 * MIB, 0));
    SHOW(wrong(p, MIB, 2));
    CALL(munmap(p, 4 * MIB));
}

static void moving(void) {
    char *p = map(16 * MIB, RW);
    fill(p, 16 * MIB, 3);
    MUST(mprotect(p + 8 * MIB, PAGE, PROT_READ) == 0); // The first half cannot grow in place.
    char *q = mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE);
    SHOW(q != MAP_FAILED && q != p);
    SHOW(wrong(q, 8 * MIB, 3)), SHOW(nonzero(q + 8 * MIB, 16 * MIB));
    SHOW(probe(p, 'r')), SHOW(probe(p + 8 * MIB, 'r'));
    fill(q, 24 * MIB, 4);
    SHOW(wrong(p + 8 * MIB, 8 * MIB, 3 + 8 * MIB / 8)), SHOW(wrong(q, 24 * MIB, 4));
    CALL(munmap(p, 16 * MIB)), CALL(munmap(q, 24 * MIB));
    // Read-only and inaccessible memory keeps its content and its protection.
    for (int i = 0; i < 2; i++) {
        p = map(3 * MIB, RW);
        fill(p, 3 * MIB, 5);
        MUST(!mprotect(p, 3 * MIB, i ? PROT_NONE : PROT_READ));
        char *blocker = mmap(p + 3 * MIB, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        q = mremap(p, 3 * MIB, 5 * MIB, MREMAP_MAYMOVE);
        SHOW(q != MAP_FAILED), SHOW(probe(q, 'r')), SHOW(probe(q, 'w')), SHOW(probe(q + 4 * MIB, 'r'));
        MUST(!mprotect(q, 5 * MIB, RW));
        SHOW(wrong(q, 3 * MIB, 5)), SHOW(nonzero(q + 3 * MIB, 2 * MIB));
        CALL(munmap(q, 5 * MIB));
        if (blocker != MAP_FAILED) munmap(blocker, PAGE);
    }
}

static void to_a_place(void) {
    char *p = map(8 * MIB, RW), *there = map(8 * MIB, RW);
    fill(p, 8 * MIB, 6), fill(there, 8 * MIB, 7);
    SHOW(mremap(p, 2 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, there + 2 * MIB) == there + 2 * MIB);
    SHOW(wrong(there, 2 * MIB, 7)), SHOW(wrong(there + 2 * MIB, 2 * MIB, 6)), SHOW(nonzero(there + 4 * MIB, 2 * MIB));
    SHOW(wrong(there + 6 * MIB, 2 * MIB, 7 + 6 * MIB / 8)), SHOW(probe(p, 'r'));
    SHOW(wrong(p + 2 * MIB, 6 * MIB, 6 + 2 * MIB / 8));
    char *kept = mremap(p + 4 * MIB, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    SHOW(kept != MAP_FAILED), SHOW(wrong(kept, 2 * MIB, 6 + 4 * MIB / 8)), SHOW(nonzero(p + 4 * MIB, 2 * MIB));
    // Out of our range and back: a file's mapping goes where anonymous memory was, and the other way round.
    FILE *file = tmpfile();
    char *mapped = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, fileno(file), 0);
    MUST(!ftruncate(fileno(file), 4 * PAGE));
    fill(mapped, 4 * PAGE, 8);
    SHOW(mremap(mapped, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
    SHOW(wrong(there, 4 * PAGE, 8)), SHOW(wrong(there + 4 * PAGE, PAGE, 7 + 4 * PAGE / 8)), SHOW(probe(mapped, 'r'));
    char *shared = mmap(NULL, 8 * PAGE, RW, MAP_SHARED, fileno(file), 0);
    char *target = there + 6 * MIB;
    SHOW(mremap(target, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, shared) == shared);
    SHOW(wrong(shared, PAGE, 7 + 6 * MIB / 8)), SHOW(nonzero(shared + PAGE, PAGE)), SHOW(probe(target, 'r'));
    char *again = mremap(there, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 2 * MIB);
    SHOW(again == p + 2 * MIB), SHOW(wrong(again, 4 * PAGE, 8)), SHOW(probe(there, 'r'));
    SHOW(mremap(again, 4 * PAGE, 2 * PAGE, 0) == again), SHOW(wrong(again, 2 * PAGE, 8)), SHOW(probe(again + 2 * PAGE, 'r'));
    munmap(p, 8 * MIB), munmap(there, 8 * MIB), munmap(kept, 2 * MIB), munmap(shared, 8 * PAGE), fclose(file);
}

static void refusals(void) {
    char *p = map(8 * PAGE, RW), *q = map(8 * PAGE, RW);
    CALL(mremap(p + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE)), CALL(mremap(p, PAGE, 0, MREMAP_MAYMOVE));
    CALL(mremap(p, 0, PAGE, MREMAP_MAYMOVE)), CALL(mremap(p, PAGE, PAGE, 64));
    CALL(mremap(p, PAGE, PAGE, MREMAP_FIXED, q)), CALL(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q + 1));
    CALL(mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE));
    CALL(mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP)), CALL(mremap(p, PAGE, PAGE, MREMAP_DONTUNMAP));
    CALL(mremap(p, PAGE, (size_t)3 << 45, MREMAP_MAYMOVE));
    MUST(!munmap(p + 4 * PAGE, PAGE));
    CALL(mremap(p + 4 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE)), CALL(mremap(p + 2 * PAGE, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE));
    munmap(p, 8 * PAGE), munmap(q, 8 * PAGE);
}

// A range of several mappings may shrink, and stay as it is, but not grow or move; what is behind it may have holes.
static void shrinking(void) {
    for (int how = 0; how < 6; how++) {
        char *p = map(10 * PAGE, RW);
        fill(p, 10 * PAGE, 10);
        if (how == 0) MUST(!mprotect(p + 9 * PAGE, PAGE, PROT_NONE));
        if (how == 1) MUST(!mlock(p + 6 * PAGE, PAGE));
        if (how == 2) MUST(!madvise(p + 2 * PAGE, PAGE, MADV_DONTDUMP));
        if (how == 3) MUST(!munmap(p + 7 * PAGE, PAGE));
        if (how == 4) MUST(!munmap(p + 4 * PAGE, 6 * PAGE));
        if (how == 5) MUST(mmap(p + 3 * PAGE, 3 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
        printf("shrink %d\n", how);
        SHOW(mremap(p, 10 * PAGE, 10 * PAGE, 0) == p), CALL(mremap(p, 10 * PAGE, 11 * PAGE, MREMAP_MAYMOVE));
        SHOW(mremap(p, 10 * PAGE, 4 * PAGE, how % 2 ? MREMAP_MAYMOVE : 0) == p);
        SHOW(wrong(p, 3 * PAGE, 10)), SHOW(probe(p + 3 * PAGE, 'w'));
        for (int page = 4; page < 10; page++) SHOW(probe(p + page * PAGE, 'r'));
        CALL(munmap(p, PAGE)), CALL(mremap(p, 4 * PAGE, 2 * PAGE, 0)), CALL(munmap(p, 4 * PAGE));
    }
}

// An array that grows by mremap, as large arrays do.
static void growing(void) {
    size_t bytes = 64 * 1024;
    uint64_t *p = (uint64_t *)map(bytes, RW);
    fill(p, bytes, 9);
    while (bytes < 48 * MIB) {
        size_t next = bytes + bytes / 2 / PAGE * PAGE;
        p = mremap(p, bytes, next, MREMAP_MAYMOVE);
        MUST(p != MAP_FAILED);
        for (size_t i = bytes / 8; i < next / 8; i++) p[i] = mix(9 + i);
        bytes = next;
    }
    SHOW(wrong(p, bytes, 9));
    CALL(munmap(p, bytes));
}

static char *target;
static const size_t moved_bytes = 64 * PAGE;
static volatile int moves, neither;

static void *looks(void *unused) {
    while (moves)
        for (size_t at = 0; at < moved_bytes; at += PAGE)
            if (target[at] != 1) neither = 1;
    return NULL;
}

// A move onto a mapping that another thread reads: it sees what was there or what comes.
static void beside_a_reader(void) {
    target = map(moved_bytes, RW);
    memset(target, 1, moved_bytes);
    pthread_t reader;
    moves = 1;
    MUST(!pthread_create(&reader, NULL, looks, NULL));
    for (int round = 0; round < 500; round++) {
        char *p = map(moved_bytes, RW);
        memset(p, 1, moved_bytes);
        MUST(mremap(p, moved_bytes, moved_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    }
    moves = 0;
    MUST(!pthread_join(reader, NULL));
    SHOW(neither), SHOW(target[0]), CALL(munmap(target, moved_bytes));
}

// What is locked and cannot be locked again at its new size, by the kernel's limit or the budget, keeps its content where it says that it is.
static void locked(void) {
    char *p = with_room(8 * PAGE, 8 * PAGE);
    MUST(mmap(p + 8 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 8 * PAGE);
    fill(p, 8 * PAGE, 21);
    CALL(mlock(p, 8 * PAGE));
    char *q = mremap(p, 8 * PAGE, 64 * MIB, MREMAP_MAYMOVE);
    if (q == MAP_FAILED) q = p;
    SHOW(wrong(q, 8 * PAGE, 21));
    munlock(q, 8 * PAGE);
    char *r = map(64 * MIB, RW);
    *r = 1;
    void *again = mmap(r, 64 * MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_LOCKED, -1, 0);
    SHOW(probe(r, 'w')), SHOW(*r == (again == MAP_FAILED));
    munmap(r, 64 * MIB);
}

// A shared mapping inside memory that was reserved: moved, left in place, and onto itself.
static void shared(void) {
    char *p = map(MIB, PROT_NONE), *q = p + MIB / 2;
    const size_t bytes = 16 * PAGE;
    int file = memfd_create("shared", 0);
    MUST(file >= 0 && !ftruncate(file, bytes));
    MUST(mmap(p, bytes, RW, MAP_SHARED | MAP_FIXED, file, 0) == p);
    fill(p, bytes, 22);
    char *elsewhere = mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    SHOW(elsewhere != MAP_FAILED && elsewhere != p && !wrong(elsewhere, bytes, 22)), SHOW(wrong(p, bytes, 22));
    SHOW(mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, q) == q);
    SHOW(probe(p, 'r')), SHOW(wrong(q, bytes, 22));
    CALL(mremap(q, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, q - PAGE)), SHOW(probe(q, 'r')), SHOW(wrong(q, bytes, 22));
    SHOW(mremap(q, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, q + bytes) == q + bytes);
    SHOW(probe(q, 'r')), SHOW(wrong(q + bytes, bytes, 22));
    CALL(munmap(p, MIB)), CALL(munmap(elsewhere, bytes)), CALL(close(file));
}

int main(void) {
    beside_a_reader();
    locked();
    shared();
    in_place();
    moving();
    to_a_place();
    refusals();
    shrinking();
    growing();
}
