/* What runtimes do with memory that was evicted: a move that leaves the old place mapped, a write barrier by SIGSEGV, mappings over a
 * part, names, advice that is refused, growth. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <ucontext.h>

enum { MEBIBYTES = 32, PAGES = MEBIBYTES * 256 };
static const size_t bytes = (size_t)MEBIBYTES << 20;
static char *memory;
static unsigned long hits, odd;

static unsigned long nonzero(const char *at, size_t length) {
    unsigned long found = 0;
    for (size_t i = 0; i < length; i += 4096) found += at[i] != 0 || at[i + 4095] != 0;
    return found;
}

/* The kernel must say what it says of near memory: a write that was not allowed. */
static void on_write(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t error = ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR];
    char *at = info->si_addr;
    odd += info->si_code != SEGV_ACCERR || !(error & 2) || at < memory || at >= memory + bytes;
    hits++;
    mprotect((void *)((uintptr_t)at & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

int main(void) {
    const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    fill((uint64_t *)memory, PAGES, 1);
    char *moved = mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (moved == MAP_FAILED) return printf("mremap: %s\n", strerror(errno)), 1;
    verify((uint64_t *)moved, PAGES, 1, "moved");
    printf("the old place has %lu pages\n", nonzero(memory, bytes));
    munmap(moved, bytes);
    fill((uint64_t *)memory, PAGES, 2);
    struct sigaction action = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    mprotect(memory, bytes, PROT_READ);
    for (size_t page = 0; page < PAGES; page += 3) ((uint64_t *)memory)[page * PAGE_WORDS] = pattern_word(page, 0, 2);
    verify((uint64_t *)memory, PAGES, 2, "behind the barrier");
    printf("barrier: %lu hits, %lu odd\n", hits, odd);
    mprotect(memory, bytes, PROT_READ | PROT_WRITE);
    char *middle = mmap(memory + bytes / 4, bytes / 4, PROT_READ | PROT_WRITE, anonymous | MAP_FIXED, -1, 0);
    printf("new middle %lu\n", nonzero(middle, bytes / 4));
    verify((uint64_t *)memory, PAGES / 4, 2, "before the middle");
    int removed = madvise(memory, bytes / 2, MADV_REMOVE);
    printf("remove %d %s\n", removed, removed ? strerror(errno) : "");
    printf("dumpable %d\n", prctl(PR_SET_DUMPABLE, 0));
    char *grown = mremap(memory, bytes / 4, bytes, MREMAP_MAYMOVE);
    verify((uint64_t *)grown, PAGES / 4, 2, "grown");
    printf("grown by %lu pages that are not zero\n", nonzero(grown + bytes / 4, bytes / 4 * 3));
    return 0;
}
