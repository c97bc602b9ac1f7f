/* Sealed memory (mseal(2)) under memory pressure, and what the kernel refuses on it.
 * usage: sealed keep|fork|drop|drop-writable|change */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static void say(const char *what, int good) { printf("%s %s\n", what, good ? "done" : strerror(errno)); }

int main(int count, char **words) {
    const char *way = count > 1 ? words[1] : "";
    const uint64_t mebibytes = 8;
    const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    setvbuf(stdout, NULL, _IONBF, 0);
    uint64_t *sealed = mmap(NULL, mebibytes << 20, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    fill(sealed, mebibytes * 256, 1);
    if (!strcmp(way, "drop") || !strcmp(way, "change")) mprotect(sealed, mebibytes << 20, PROT_READ);
    say("seal", !syscall(SYS_mseal, sealed, mebibytes << 20, 0L));
    patterned(48, 2); /* everything else leaves */
    if (!strcmp(way, "fork")) {
        if (fork() == 0) {
            patterned(48, 3);
            verify(sealed, mebibytes * 256, 1, "child");
            _exit(0);
        }
        int status = -1;
        wait(&status);
        printf("child %#x\n", status);
    }
    if (!strncmp(way, "drop", 4)) say(way, !madvise(sealed, 4096, MADV_DONTNEED));
    if (!strcmp(way, "drop-writable")) return (int)(sealed[1] & 1);
    if (!strcmp(way, "change")) {
        say("move", mremap(sealed, mebibytes << 20, mebibytes << 21, MREMAP_MAYMOVE) != MAP_FAILED);
        say("replace", mmap(sealed, 4096, PROT_READ, anonymous | MAP_FIXED, -1, 0) != MAP_FAILED);
        say("unmap", !munmap(sealed, 4096));
        say("protect", !mprotect(sealed, 4096, PROT_READ | PROT_WRITE));
    }
    verify(sealed, mebibytes * 256, 1, "after");
    puts("content right");
    return 0;
}
