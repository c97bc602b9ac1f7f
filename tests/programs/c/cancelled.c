/* A thread that was cancelled, and comes to no cancellation point, goes on: it reads its memory, forks, and the child does so, too. */
#include "pattern.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEBIBYTES = 48 };

static uint64_t *memory;
static atomic_int begun, cancelled;
static int status = -1;

static void *thread(void *unused) {
    atomic_store(&begun, 1);
    while (!atomic_load(&cancelled)) {
    }
    verify(memory, MEBIBYTES * 256, 1, "thread");
    pid_t child = fork();
    if (child == 0) {
        verify(memory, MEBIBYTES * 256, 1, "child");
        _exit(3);
    }
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    waitpid(child, &status, 0);
    return unused;
}

int main(void) {
    memory = patterned(MEBIBYTES, 1);
    pthread_t id;
    void *result;
    if (pthread_create(&id, NULL, thread, &status)) return 1;
    while (!atomic_load(&begun)) {
    }
    if (pthread_cancel(id)) return 1;
    atomic_store(&cancelled, 1);
    if (pthread_join(id, &result)) return 1;
    printf("%s, child %d\n", result == &status ? "went on" : "cancelled", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
