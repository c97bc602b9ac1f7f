/* One function allocates and frees; another allocates the same memory in pieces, and waits for it. Then children, one after the other, hold
 * what none of them frees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

__attribute__((noinline)) static int in_a_child(void) {
    unsigned char *bytes = malloc(CHILD_BYTES);
    memset(bytes, 3, CHILD_BYTES);
    return ((volatile unsigned char *)bytes)[CHILD_BYTES / 2] - 3;
}

int main(void) {
    long sum = first();
    make_pieces();
    sum += second();
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
