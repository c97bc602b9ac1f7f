/* Calls that tell whether memory is mapped, on far pages that are and on pages that were unmapped. */
#define _GNU_SOURCE
#include "tell.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

int main(void) {
    const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    setvbuf(stdout, NULL, _IONBF, 0);
    char *there = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    char *hole = there + 4 * PAGE;
    unsigned char bits[16];
    int ends[2];
    memset(there, 1, 16 * PAGE);
    munmap(hole, PAGE);
    if (pipe(ends)) return 1;
    TELL(msync(hole, PAGE, MS_ASYNC));
    TELL(msync(there, 16 * PAGE, MS_ASYNC));
    TELL(mincore(hole, PAGE, bits));
    TELL(mincore(there, 16 * PAGE, bits));
    TELL(madvise(hole, PAGE, MADV_DONTNEED));
    TELL(madvise(there, 16 * PAGE, MADV_DONTNEED));
    TELL(madvise(hole, PAGE, MADV_WILLNEED));
    TELL(mprotect(hole, PAGE, PROT_READ));
    TELL(mlock(hole, PAGE));
    TELL(munlock(hole, PAGE));
    TELL(mlock(there, 16 * PAGE));
    TELL(munlock(there, 16 * PAGE));
    TELL(write(ends[1], hole, 16));
    TELL(write(ends[1], hole - 8, 16));
    TELL(access(hole, F_OK));
    TELL(mremap(hole, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    TELL(madvise(there, PAGE, MADV_REMOVE));
    char *room = (char *)sbrk(0) + (1 << 20); /* above the break, on a page */
    room -= (unsigned long)room % PAGE;
    TELL(msync(room, PAGE, MS_SYNC));
    TELL(mincore(room, PAGE, bits));
    TELL(mprotect(room, PAGE, PROT_READ | PROT_WRITE));
    TELL(madvise(room, PAGE, MADV_DONTNEED));
    TELL(mlock(room, PAGE));
    puts("end");
    return 0;
}
