/* One function allocates and frees; another allocates the same memory in pieces, and waits for it. The same with a mapping, and one that
 * becomes accessible later, of which nothing is noted. Then children, one after the other, hold
 * what none of them frees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (32L << 20)
#define BLOCK (2L << 20)
#define PIECE (64L << 10)
#define PIECES (BYTES / PIECE)
#define CHILDREN 5
#define CHILD_BYTES (8L << 20)

static unsigned char *pieces[PIECES];

/* In blocks that an allocator cuts up again. */
__attribute__((noinline)) static long first(void) {
    long sum = 0;
    for (long i = 0; i < BYTES / BLOCK; i++) {
        pieces[i] = malloc(BLOCK);
        memset(pieces[i], 1, BLOCK);
        sum += ((volatile unsigned char *)pieces[i])[BLOCK / 2];
    }
    for (long i = 0; i < BYTES / BLOCK; i++)
        free(pieces[i]);
    return sum;
}

__attribute__((noinline)) static void make_pieces(void) {
    for (long i = 0; i < PIECES; i++) {
        pieces[i] = malloc(PIECE);
        memset(pieces[i], 2, PIECE);
    }
}

__attribute__((noinline)) static long second(void) {
    long sum = 0;
    for (long round = 0; round < 4; round++)
        for (long i = 0; i < PIECES; i++)
            for (long at = 0; at < PIECE; at += 4096)
                sum += ((volatile unsigned char *)pieces[i * 7 % PIECES])[at];
    return sum;
}

__attribute__((noinline)) static void *mapped(void) {
    char *bytes = mmap(NULL, CHILD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(bytes, 4, CHILD_BYTES);
    munmap(bytes, CHILD_BYTES);
    return bytes;
}

__attribute__((noinline)) static void reserved(void *there) {
    char *bytes = mmap(there, CHILD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (bytes != there || mprotect(bytes, CHILD_BYTES, PROT_READ | PROT_WRITE) != 0)
        abort();
    memset(bytes, 5, CHILD_BYTES);
    /* So that it comes back here. */
    bytes[7] += 1;
}

__attribute__((noinline)) static int in_a_child(void) {
    unsigned char *bytes = malloc(CHILD_BYTES);
    memset(bytes, 3, CHILD_BYTES);
    return ((volatile unsigned char *)bytes)[CHILD_BYTES / 2] - 3;
}

int main(void) {
    long sum = first();
    make_pieces();
    sum += second();
    reserved(mapped());
    fflush(stdout);
    int failed = 0;
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(in_a_child());
        int status = 1;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    printf("%ld %d\n", sum, failed);
    return 0;
}
