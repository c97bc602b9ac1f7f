/* Ways to end and things to close, with memory far.
 * usage: endings close-descriptors|close-stderr|return|exit|_exit|abort|segv|kill|term-caught */
#define _GNU_SOURCE
#include "pattern.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const uint64_t MEBIBYTES = 48;
static volatile sig_atomic_t caught;

static void note(int number) { caught = number; }

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    uint64_t *memory = patterned(MEBIBYTES, 1);
    verify(memory, MEBIBYTES * 256, 1, "before");
    if (!strcmp(way, "close-descriptors")) {
        for (int descriptor = 3; descriptor < 4096; descriptor++) close(descriptor);
        close_range(3, ~0u, 0);
    }
    if (!strcmp(way, "close-stderr")) close(2);
    if (!strcmp(way, "term-caught")) {
        signal(SIGTERM, note);
        puts("ready");
        fflush(stdout);
        while (!caught) verify(memory, MEBIBYTES * 256, 1, "waiting");
    }
    fill(memory, MEBIBYTES * 256, 2);
    verify(memory, MEBIBYTES * 256, 2, "after");
    printf("verified %d\n", (int)caught);
    fflush(stdout);
    if (!strcmp(way, "exit")) exit(7);
    if (!strcmp(way, "_exit")) _exit(8);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "segv")) *(volatile int *)(uintptr_t)strlen(way) = 1;
    if (!strcmp(way, "kill")) kill(getpid(), SIGKILL);
    return 0;
}
