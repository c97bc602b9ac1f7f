// Cancelled threads: what lies on their stacks is destroyed, and what their calls held is given up.
#include "check.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

static int ends[2];
static volatile int destroyed, cleaned;

struct Guard {
    ~Guard() { destroyed++; }
};

enum { WAYS = 6 };

static void __attribute__((noinline)) wait_in(long way, char *at) {
    iovec vector = {at, MIB};
    msghdr message = {};
    message.msg_iov = &vector, message.msg_iovlen = 1;
    Guard guard;
    switch (way) {
    case 0: read(ends[0], at, 100); break;
    case 1: read(ends[0], at, MIB); break;
    case 2: readv(ends[0], &vector, 1); break;
    case 3: recv(ends[0], at, 4096, 0); break;
    case 4: recvmsg(ends[0], &message, 0); break;
    case 5: pause(); break;
    }
}

static void clean(void *) { cleaned++; }

static void *thread(void *way) {
    char *at = (char *)mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 1, MIB);
    Guard guard;
    pthread_cleanup_push(clean, NULL);
    wait_in((long)way, at);
    pthread_cleanup_pop(0);
    return NULL;
}

int main() {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    int cancelled = 0;
    // So many that a megabyte of each, if it stayed pinned, would fill the budget.
    for (long i = 0; i < 8 * WAYS; i++) {
        pthread_t id;
        void *result;
        MUST(pthread_create(&id, NULL, thread, (void *)(i % WAYS)) == 0);
        timespec pause = {0, 3000000};
        nanosleep(&pause, NULL);
        MUST(pthread_cancel(id) == 0 && pthread_join(id, &result) == 0);
        cancelled += result == PTHREAD_CANCELED;
    }
    SHOW(cancelled), SHOW(destroyed), SHOW(cleaned);
    char *all = (char *)malloc(40 * MIB);
    memset(all, 3, 40 * MIB);
    size_t bad = 0;
    for (size_t i = 0; i < 40 * MIB; i += 4096) bad += all[i] != 3;
    SHOW(bad);
    fflush(stdout);
    _exit(0);
}
