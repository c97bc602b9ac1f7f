/* The first thread leaves with pthread_exit; the process must end with the last one. */
#include "pattern.h"
#include <pthread.h>
#include <unistd.h>

static uint64_t *memory;

static void *work(void *unused) {
    usleep(100000);
    verify(memory, 64 * 256, 1, "last thread");
    puts("last thread ok");
    fflush(stdout);
    return unused;
}

int main(void) {
    memory = patterned(64, 1);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) || pthread_detach(thread)) return 1;
    pthread_exit(NULL);
}
