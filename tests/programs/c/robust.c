/* Robust mutexes on very many pages. usage: robust PAGES */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t pages = argc > 1 ? atoi(argv[1]) : 1, right = 0;
    char *memory = aligned_alloc(4096, pages * 4096);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    for (size_t page = 0; page < pages; page++)
        right += !pthread_mutex_init((pthread_mutex_t *)(memory + page * 4096), &attributes);
    for (size_t page = 0; page < pages; page++) right += !pthread_mutex_lock((pthread_mutex_t *)(memory + page * 4096));
    printf("%zu of %zu right\n", right, 2 * pages);
    return 0;
}
