/* Objects grow beyond their place while others are written to: a call that goes well leaves errno as it was. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define BESIDE (24 * MIB)
#define GROWS (8 * MIB)

static atomic_int over;

static void *write_over(void *memory) {
    unsigned char *at = memory;
    for (int round = 0; !over; round++)
        for (size_t i = 0; i < BESIDE && !over; i += PAGE) at[i] = round + i / PAGE;
    return NULL;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, write_over, malloc(BESIDE));
    int changed = 0;
    long sum = 0;
    for (int round = 0; round < 25; round++) {
        errno = 0;
        unsigned char *object = malloc(GROWS);
        for (size_t i = 0; i < GROWS; i += PAGE) object[i] = round + i / PAGE;
        for (int times = 2; times <= 4; times += 2) object = realloc(object, times * GROWS);
        for (size_t i = 0; i < GROWS; i += PAGE) sum += object[i];
        free(object);
        changed += errno != 0;
    }
    over = 1;
    pthread_join(thread, NULL);
    printf("errno changed in %d rounds, sum %ld\n", changed, sum);
    return 0;
}
