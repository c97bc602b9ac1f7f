/* 200 threads, eight at a time, come, touch far memory that others filled, allocate, and go.
 * usage: threads */
#include "pattern.h"
#include <pthread.h>
#include <string.h>

enum { THREADS = 200, AT_ONCE = 8 };
static const uint64_t MEBIBYTES = 64;
static uint64_t *memory;

static void *work(void *argument) {
    uint64_t number = (uintptr_t)argument, pages = MEBIBYTES * 256, part = pages / THREADS;
    verify(memory, part, 1, "shared part");
    char *own = malloc(300000);
    memset(own, (int)number, 300000);
    uint64_t sum = 0;
    for (uint64_t page = number; page < pages; page += THREADS) {
        uint64_t word = memory[page * PAGE_WORDS + number];
        if (word != pattern_word(page, number, 1)) {
            printf("WRONG in thread %llu\n", (unsigned long long)number);
            fflush(stdout);
            _Exit(99);
        }
        sum ^= word;
    }
    for (int i = 0; i < 300000; i++)
        if (own[i] != (char)number) _Exit(99);
    free(own);
    return (void *)(uintptr_t)sum;
}

int main(void) {
    memory = patterned(MEBIBYTES, 1);
    uint64_t sum = 0;
    for (uintptr_t first = 0; first < THREADS; first += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (uintptr_t t = 0; t < AT_ONCE; t++)
            if (pthread_create(&threads[t], NULL, work, (void *)(first + t))) return 96;
        for (int t = 0; t < AT_ONCE; t++) {
            void *result;
            pthread_join(threads[t], &result);
            sum += (uintptr_t)result;
        }
    }
    printf("threads ok %016llx\n", (unsigned long long)sum);
    return 0;
}
