/* A thousand functions that touch random pages, a few each; one, whose number is the first argument, touches many. Then a child does the
 * same in a function of its own, and a copy by libc goes through the memory once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES (12 * 1024L)
#define WORDS (PAGES * 512L)
#define FEW 10
#define MANY 40000

static unsigned long state = 88172645463325252ul;

static unsigned long next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Each of its own, so that the compiler does not make one of them. */
#define FUNCTION(n)                                                                                                                        \
    __attribute__((noinline)) static long function_##n(volatile long *words, long times) {                                                \
        long sum = n;                                                                                                                      \
        for (long i = 0; i < times; i++)                                                                                                   \
            sum += words[next() % WORDS] + n;                                                                                              \
        return sum;                                                                                                                        \
    }
#define TEN(f, n) f(n##0) f(n##1) f(n##2) f(n##3) f(n##4) f(n##5) f(n##6) f(n##7) f(n##8) f(n##9)
#define HUNDRED(f, n) TEN(f, n##0) TEN(f, n##1) TEN(f, n##2) TEN(f, n##3) TEN(f, n##4) TEN(f, n##5) TEN(f, n##6) TEN(f, n##7) TEN(f, n##8) TEN(f, n##9)
#define THOUSAND(f) HUNDRED(f, 10) HUNDRED(f, 11) HUNDRED(f, 12) HUNDRED(f, 13) HUNDRED(f, 14) HUNDRED(f, 15) HUNDRED(f, 16) HUNDRED(f, 17) HUNDRED(f, 18) HUNDRED(f, 19)
#define ENTRY(n) function_##n,

THOUSAND(FUNCTION)

static long (*const functions[])(volatile long *, long) = {THOUSAND(ENTRY)};

__attribute__((noinline)) static long *make_words(void) {
    long *words = malloc(WORDS * sizeof(long));
    for (long i = 0; i < WORDS; i++)
        words[i] = i;
    return words;
}

__attribute__((noinline)) static long in_the_child(volatile long *words) {
    long sum = 0;
    for (long i = 0; i < MANY / 40; i++)
        sum += words[next() % WORDS];
    return sum;
}

__attribute__((noinline)) static void copies(long *to, const long *from) {
    memcpy(to, from, WORDS / 4 * sizeof(long));
    /* So that it comes back here. */
    to[7] += 1;
}

int main(int argc, char **argv) {
    int worst = argc > 1 ? atoi(argv[1]) : 0;
    long *words = make_words();
    long sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += functions[i](words, i == worst ? MANY : FEW);
    long *to = malloc(WORDS / 4 * sizeof(long));
    copies(to, words);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(in_the_child(words) == 0);
    int status = 1;
    waitpid(child, &status, 0);
    printf("%ld %ld %d\n", sum, to[7], status);
    free(to);
    free(words);
    return 7;
}
