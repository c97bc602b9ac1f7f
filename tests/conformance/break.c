// The program's own break.
#include "check.h"

int main(void) {
    static char buffer[1 << 16]; // Natively libc's heap uses the same break: nothing may be allocated while it moves.
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    char *start = sbrk(0);
    MUST(start != (char *)-1);
    SHOW(sbrk(0) == start), SHOW(sbrk(100) == start), SHOW(sbrk(0) == start + 100);
    memset(start, 1, 100);
    SHOW(sbrk(20 * (intptr_t)MIB) == start + 100);
    SHOW(nonzero(start + 100, 20 * MIB));
    fill(start + 104 - (uintptr_t)start % 8, 19 * MIB, 1);
    SHOW(wrong(start + 104 - (uintptr_t)start % 8, 19 * MIB, 1));
    SHOW(brk(start + 5 * MIB)), SHOW(sbrk(0) == start + 5 * MIB);
    SHOW(probe(start + 6 * MIB, 'r')), SHOW(start[99]);
    SHOW(wrong(start + 104 - (uintptr_t)start % 8, 4 * MIB, 1));
    SHOW(brk(start + 10 * MIB)), SHOW(nonzero(start + 6 * MIB, 4 * MIB));
    errno = 0;
    SHOW(sbrk((intptr_t)1 << 60) == (void *)-1), SHOW(errno == ENOMEM);
    SHOW(brk(start)), SHOW(sbrk(0) == start), SHOW(probe(start + 2 * MIB, 'r'));
}
