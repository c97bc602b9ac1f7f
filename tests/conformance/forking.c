// What a forked child sees: a copy, nothing, or zeros; and what it changes stays its own.
#include "check.h"
#include <sys/wait.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static void in_child(void (*body)(void)) {
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        body();
        fflush(stdout);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    SHOW(status);
}

static char *heap, *plain, *left_out, *wiped, *shared;
static const size_t bytes = 8 * MIB;

static void look(void) {
    SHOW(wrong(heap, bytes, 1)), SHOW(wrong(plain, bytes, 2)), SHOW(probe(left_out, 'r')), SHOW(nonzero(wiped, bytes));
    SHOW(wrong(shared, bytes, 5));
    fill(heap, bytes, 11), fill(plain, bytes, 12), fill(shared, bytes, 15);
    char *more = malloc(bytes);
    fill(more, bytes, 3);
    heap = realloc(heap, 2 * bytes);
    SHOW(wrong(heap, bytes, 11)), SHOW(wrong(more, bytes, 3)), SHOW(wrong(plain, bytes, 12));
    free(heap), free(more);
    SHOW(munmap(plain, bytes)), SHOW(probe(plain, 'r'));
}

static void look_again(void) {
    SHOW(wrong(left_out, bytes, 3)), SHOW(wrong(wiped, bytes, 4));
}

int main(void) {
    heap = malloc(bytes);
    plain = mmap(NULL, bytes, RW, ANON, -1, 0), left_out = mmap(NULL, bytes, RW, ANON, -1, 0);
    wiped = mmap(NULL, bytes, RW, ANON, -1, 0), shared = mmap(NULL, bytes, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(heap, bytes, 1), fill(plain, bytes, 2), fill(left_out, bytes, 3), fill(wiped, bytes, 4), fill(shared, bytes, 5);
    CALL(madvise(left_out, bytes, MADV_DONTFORK)), CALL(madvise(wiped, bytes, MADV_WIPEONFORK));
    in_child(look);
    SHOW(wrong(heap, bytes, 1)), SHOW(wrong(plain, bytes, 2)), SHOW(wrong(left_out, bytes, 3)), SHOW(wrong(wiped, bytes, 4));
    SHOW(wrong(shared, bytes, 15));
    CALL(madvise(left_out, bytes, MADV_DOFORK)), CALL(madvise(wiped, bytes, MADV_KEEPONFORK));
    in_child(look_again);
}
