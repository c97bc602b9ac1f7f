/* Workers that share what their parent has written. The parent writes to each of PAGES pages, and forks WORKERS workers, one after the other, each from a
 * thread of its own if THREADS is 1. The n-th walks over all pages ROUNDS times, in an order of its own, checks them, and ends; the second one
 * forks a worker itself, which does the same in another order. Ends with 1 where a page is wrong.
 *
 * forked_workers PAGES WORKERS ROUNDS THREADS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, STEP = PAGE / sizeof(unsigned long) };

static volatile unsigned long *words;
static size_t pages, rounds;

/* Steps that are prime: each order comes to every page, as long as there are not as many pages as one of them says. */
static const size_t steps[] = {1, 617, 1021, 1511, 331, 2311};

static int work(size_t number) {
    for (size_t round = 0; round < rounds; round++)
        for (size_t at = 0; at < pages; at++) {
            size_t page = at * steps[number % 6] % pages;
            if (words[page * STEP] != page + 1)
                return 1;
        }
    return 0;
}

/* Forks a worker, and waits for it; what it ends with. */
static void *run(void *number) {
    size_t n = (size_t)number;
    pid_t forked = fork();
    if (forked == 0) {
        int wrong = work(n);
        if (n == 2 && !wrong)
            wrong = run((void *)5) != NULL;
        _exit(wrong);
    }
    int status = 1;
    if (forked < 0 || waitpid(forked, &status, 0) != forked)
        status = 1;
    return (void *)(size_t)status;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    pages = strtoull(argv[1], NULL, 10), rounds = strtoull(argv[3], NULL, 10);
    size_t workers = strtoull(argv[2], NULL, 10);
    words = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == 0 || words == MAP_FAILED)
        return 2;
    for (size_t page = 0; page < pages; page++)
        words[page * STEP] = page + 1;
    for (size_t number = 1; number <= workers; number++) {
        void *wrong = NULL;
        if (argv[4][0] == '1') {
            pthread_t thread;
            if (pthread_create(&thread, NULL, run, (void *)number) != 0 || pthread_join(thread, &wrong) != 0)
                return 2;
        } else {
            wrong = run((void *)number);
        }
        if (wrong != NULL)
            return 1;
    }
    puts("done");
    return work(0);
}
